import { describeStoreConformance } from "./store-conformance.js";
import { memoryFixture, sqliteFixture } from "./store-fixtures.js";

describeStoreConformance("memory", memoryFixture);
describeStoreConformance("sqlite", sqliteFixture);
