import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { stemsOf } from "../../src/legacy/file-names.js";
import {
  LegacyDirectory,
  LegacyDirectoryError,
  type LegacyFault,
} from "../../src/server/legacy-dir.js";
import { openLegacyPaths } from "../../src/server/legacy-paths.js";
import { runProcess } from "../support/run-process.js";

let folder: string;
let faults: LegacyFault[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-legacy-"));
  faults = [];
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const inFolder = (name: string): string => join(folder, name);
const snapshotOf = (id: string): string => JSON.stringify({ id });

function write(name: string, text: string): void {
  if (name.startsWith("sid-v1/")) mkdirSync(inFolder("sid-v1"), { recursive: true });
  writeFileSync(inFolder(name), text);
}

const ownStem = (id: string): string => stemsOf(id)[0] ?? "";

function open(maxBytes?: number): Promise<LegacyDirectory> {
  const onFault = (fault: LegacyFault): void => {
    faults.push(fault);
  };
  return LegacyDirectory.open(folder, {
    onFault,
    ...(maxBytes === undefined ? {} : { maxBytes }),
  });
}

describe("a directory of an older system", () => {
  test("lists the families of the folder and of sid-v1, by stem", async () => {
    write("sid-v1/b.session.json", "");
    write("sid-v1/a.events.jsonl", "");
    write("b.json", "");
    write("c.session.json", "");
    write("c.tools.jsonl", "");
    const { families } = await open();
    expect(families).toEqual([
      { stem: "a", log: "a.events.jsonl", folder: inFolder("sid-v1") },
      { stem: "b", snapshot: "b.json", folder },
      { stem: "b", snapshot: "b.session.json", folder: inFolder("sid-v1") },
      { stem: "c", snapshot: "c.session.json", folder },
    ]);
  });

  test("passes over links and what is no file", async () => {
    const outside = mkdtempSync(join(tmpdir(), "toolmark-outside-"));
    writeFileSync(join(outside, "x.session.json"), snapshotOf("x"));
    symlinkSync(outside, inFolder("sid-v1"));
    symlinkSync(join(outside, "x.session.json"), inFolder("x.session.json"));
    mkdirSync(inFolder("y.session.json"));
    await runProcess("mkfifo", [inFolder("z.session.json")]);
    expect((await open()).families).toEqual([]);
    rmSync(outside, { recursive: true });
  });

  test("that is not there, or is none, is refused by name", async () => {
    write("file", "");
    for (const name of ["none", "file"]) {
      const opening = LegacyDirectory.open(inFolder(name));
      await expect(opening).rejects.toBeInstanceOf(LegacyDirectoryError);
      await expect(opening).rejects.toMatchObject({ path: inFolder(name) });
    }
  });

  test("gives the bytes of a family, and changes nothing", async () => {
    write("a.session.json", snapshotOf("a"));
    write("a.events.jsonl", "{}\n");
    write("b.jsonl", "");
    chmodSync(inFolder("a.session.json"), 0o400);
    const before = readdirSync(folder).map((name) => statSync(inFolder(name)).mtimeMs);
    const directory = await open();
    const [a, b] = directory.families;
    expect(await directory.read(a!)).toEqual({
      snapshot: new Uint8Array(Buffer.from(snapshotOf("a"))),
      log: new Uint8Array(Buffer.from("{}\n")),
    });
    expect(await directory.read(b!)).toEqual({ snapshot: undefined, log: new Uint8Array() });
    expect(readdirSync(folder).map((name) => statSync(inFolder(name)).mtimeMs)).toEqual(before);
  });

  test("does not read what is too large, was replaced by a link, or is gone", async () => {
    write("a.session.json", snapshotOf("a"));
    write("b.events.jsonl", "x".repeat(100));
    write("c.session.json", "");
    write("d.session.json", "");
    write("e.session.json", "");
    const directory = await open(99);
    for (const name of ["c", "d", "e"]) rmSync(inFolder(`${name}.session.json`));
    symlinkSync(inFolder("a.session.json"), inFolder("c.session.json"));
    await runProcess("mkfifo", [inFolder("e.session.json")]);
    const read = await Promise.all(directory.families.map((family) => directory.read(family)));
    expect(read.slice(1)).toEqual([
      { file: inFolder("b.events.jsonl"), sizeBytes: 100, limitBytes: 99 },
      { file: inFolder("c.session.json"), unreadable: "it is a symbolic link" },
      { file: inFolder("d.session.json"), unreadable: expect.stringContaining("ENOENT") as string },
      { file: inFolder("e.session.json"), unreadable: "it is no regular file" },
    ]);
  });
});

describe("a session is found", () => {
  test("by the store's own name, without a look at the others", async () => {
    write(`sid-v1/${ownStem("a/b")}.session.json`, snapshotOf("a/b"));
    write("broken.session.json", "{");
    expect(await (await open()).find("a/b")).toMatchObject({ stem: ownStem("a/b") });
    expect(faults).toEqual([]);
  });

  test("by its id as the name, and a log alone by what its name stands for", async () => {
    write("s-1.session.json", snapshotOf("s-1"));
    write("s-2.events.jsonl", "");
    write(`sid-v1/${ownStem("s/3")}.events.jsonl`, "");
    const directory = await open();
    expect(await directory.find("s-1")).toMatchObject({ stem: "s-1" });
    expect(await directory.find("s-2")).toMatchObject({ stem: "s-2" });
    expect(await directory.find("s/3")).toMatchObject({ stem: ownStem("s/3") });
    expect(await directory.find("s_3")).toBeUndefined();
  });

  test("by what its snapshot says, whatever its name says", async () => {
    write("s-1.session.json", snapshotOf("s-2"));
    write("other.json", snapshotOf("s-1"));
    const directory = await open();
    expect(await directory.find("s-1")).toMatchObject({ stem: "other" });
    expect(await directory.find("s-2")).toMatchObject({ stem: "s-1" });
    expect(await directory.find("other")).toBeUndefined();
  });

  test("among many by callers at the same time, with every fault told once", async () => {
    write("a.session.json", '{"id":7}');
    write("b.session.json", snapshotOf("same"));
    write("c.session.json", snapshotOf("same"));
    write("d.session.json", " ".repeat(200));
    write("e.session.json", snapshotOf("last"));
    const directory = await open(199);
    const ids = ["same", "last", "none", "a", "d"];
    for (let round = 0; round < 2; round += 1) {
      const found = await Promise.all(ids.map((id) => directory.find(id)));
      expect(found.map((family) => family?.stem)).toEqual([
        "b",
        "e",
        undefined,
        undefined,
        undefined,
      ]);
    }
    const malformed = { malformed: "must be a string", path: "$.id", offsetBytes: 6 };
    expect([...faults].sort((x, y) => (x.file < y.file ? -1 : 1))).toEqual([
      { file: inFolder("a.session.json"), malformed },
      { file: inFolder("c.session.json"), sessionId: "same", takenBy: inFolder("b.session.json") },
      { file: inFolder("d.session.json"), sizeBytes: 200, limitBytes: 199 },
    ]);
  });

  test("while the event loop goes on", async () => {
    for (let at = 0; at < 20; at += 1) write(`${at}.json`, snapshotOf(`id-${at}`));
    const directory = await open();
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 0);
    await directory.find("none");
    clearInterval(counting);
    expect(turns).toBeGreaterThan(0);
  });
});

describe("paths", () => {
  test("are folders, and files of which only those named count", async () => {
    write("a.session.json", snapshotOf("a"));
    write("a.events.jsonl", "");
    write("b.json", snapshotOf("b"));
    write("sid-v1/c.json", snapshotOf("c"));
    const files = [inFolder("b.json"), inFolder("a.session.json")];
    const [inner, named] = await openLegacyPaths([inFolder("sid-v1"), ...files]);
    expect(inner?.families.map(({ stem }) => stem)).toEqual(["c"]);
    expect(named?.families).toEqual([
      { stem: "a", snapshot: "a.session.json", folder },
      { stem: "b", snapshot: "b.json", folder },
    ]);
  });

  test("that are not there, or have another name, are refused", async () => {
    write("notes.txt", "");
    for (const name of ["none", "notes.txt", "notes.txt/a.json"]) {
      const opening = openLegacyPaths([inFolder(name)]);
      await expect(opening).rejects.toBeInstanceOf(LegacyDirectoryError);
    }
  });
});
