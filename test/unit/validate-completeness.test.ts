import {
  clone,
  ScalarType,
  type DescField,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { methodName } from "../../src/rpc/call.js";
import { createValidator, VALIDATED_METHODS } from "../../src/rpc/validate/validator.js";
import { REQUEST_SAMPLES, type RequestSamples } from "../support/request-samples.js";

const validate = createValidator(DEFAULT_LIMITS);

const SERVICES = [
  SessionService,
  HistoryService,
  ApprovalService,
  InfoService,
  RunService,
  CallService,
  EvidenceService,
  ReplayService,
];

/** Methods that the service does not offer yet, and the one whose request is empty. Move a method when it is built. */
const NOT_VALIDATED: readonly string[] = [
  "toolmark.v1.SessionService.EraseSession",
  "toolmark.v1.SessionService.ExportSession",
  "toolmark.v1.InfoService.GetServerInfo",
];

type Path = readonly DescField[];

function isChecked(field: DescField): boolean {
  if (field.fieldKind === "enum") return true;
  if (field.fieldKind === "scalar") return field.scalar === ScalarType.STRING;
  if (field.fieldKind !== "list") return false;
  return field.listKind === "enum" || field.scalar === ScalarType.STRING;
}

/** Paths of every string and enum field below a message. */
function checkedPaths(desc: DescMessage, above: Path = []): Path[] {
  return desc.fields.flatMap((field) => {
    if (isChecked(field)) return [[...above, field]];
    const message = "message" in field ? field.message : undefined;
    if (message === undefined) return [];
    return checkedPaths(message, [...above, field]);
  });
}

/** Where a message holds the value of a field, with the field's path: one place, or one for each entry of a list. */
interface Place {
  readonly path: string;
  readonly value: unknown;
  readonly set: (value: unknown) => void;
}

function placesOf(holder: object, field: DescField, above: string): Place[] {
  const path = above === "" ? field.name : `${above}.${field.name}`;
  let value: unknown = Reflect.get(holder, field.localName);
  if (field.oneof !== undefined) {
    const choice: unknown = Reflect.get(holder, field.oneof.localName);
    const chosen =
      typeof choice === "object" &&
      choice !== null &&
      Reflect.get(choice, "case") === field.localName;
    value = chosen ? Reflect.get(choice, "value") : undefined;
  }
  if (Array.isArray(value)) {
    return value.map((entry: unknown, index) => ({
      path: `${path}[${index}]`,
      value: entry,
      set: (changed) => Reflect.set(value, index, changed),
    }));
  }
  return [{ path, value, set: (changed) => Reflect.set(holder, field.localName, changed) }];
}

function places(holder: object, path: Path, above = ""): Place[] {
  const [field, ...below] = path;
  if (field === undefined) return [];
  const here = placesOf(holder, field, above);
  if (below.length === 0) return here;
  return here.flatMap((place) =>
    typeof place.value === "object" && place.value !== null
      ? places(place.value, below, place.path)
      : [],
  );
}

interface Change {
  readonly request: Message;
  readonly path: string;
}

/** A well-formed request with this one field, which it sets, changed; nothing if no sample sets the field. */
function changeOnly(
  { method, requests }: RequestSamples,
  path: Path,
  to: unknown,
): Change | undefined {
  for (const sample of requests) {
    const request = clone(method.input, sample);
    const place = places(request, path).find(({ value }) => Boolean(value));
    if (place === undefined) continue;
    place.set(to);
    return { request, path: place.path };
  }
  return undefined;
}

const FIELDS = REQUEST_SAMPLES.flatMap((sample) =>
  checkedPaths(sample.method.input).map((path) => ({
    sample,
    path,
    method: sample.method.name,
    field: path.map(({ name }) => name).join("."),
    isEnum: path.some((field) => "enum" in field && field.enum !== undefined),
  })),
);

function expectRefused({ sample, path }: (typeof FIELDS)[number], to: unknown): void {
  const change = changeOnly(sample, path, to);
  if (change === undefined) throw new Error("no sample sets this field: add one that does");
  const refusal = validate(sample.method, change.request);
  expect(refusal?.metadata["field"]).toBe(change.path);
  expect(refusal?.reason).toBe(ErrorReason.FIELD_INVALID);
}

describe("every field of every request that is offered", () => {
  it("is known for every method: each is validated or named as not offered", () => {
    const all = SERVICES.flatMap((service) => service.methods.map(methodName));
    expect([...VALIDATED_METHODS, ...NOT_VALIDATED].sort()).toEqual(all.sort());
  });

  it("has samples for every validated method", () => {
    const sampled = REQUEST_SAMPLES.map(({ method }) => methodName(method));
    expect(sampled.sort()).toEqual([...VALIDATED_METHODS].sort());
  });

  it("is reached below Apply too", () => {
    const reached = FIELDS.filter(({ method }) => method === "Apply").map(({ field }) => field);
    expect(reached).toContain("commands.accept_turn.calls.arguments.media_type");
    expect(reached).toContain("commands.record_result.canonical.end");
  });

  it.each(FIELDS.filter(({ isEnum }) => isEnum))(
    "$method refuses an unknown value of $field",
    (field) => {
      expectRefused(field, 9999);
    },
  );

  const strings = FIELDS.filter(({ isEnum }) => !isEnum);

  it.each(strings)("$method refuses a lone surrogate in $field", (field) => {
    expectRefused(field, "a\ud800");
  });

  it.each(strings)("$method bounds the size of $field", (field) => {
    expectRefused(field, "a".repeat(DEFAULT_LIMITS.inlineBodyBytes + 1));
  });
});
