import type { DescService } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import * as reflectionV1 from "../../gen/grpc/reflection/v1/reflection_pb.js";
import * as reflectionV1Alpha from "../../gen/grpc/reflection/v1alpha/reflection_pb.js";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { InfoService } from "../../gen/toolmark/v1/info_service_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { bindService, type Implementation } from "../../src/rpc/call.js";
import { POLICY, PolicyMissingError, resolvePolicy } from "../../src/rpc/policy.js";

const ENGINE_SERVICES = [CallService, EvidenceService, ReplayService, RunService];
const SERVICES: readonly DescService[] = [
  ...[ApprovalService, HistoryService, InfoService, SessionService],
  ...ENGINE_SERVICES,
  ...[reflectionV1.ServerReflection, reflectionV1Alpha.ServerReflection],
];

function namesOf(services: readonly DescService[]): string[] {
  return services.flatMap(({ typeName, methods }) =>
    methods.map(({ name }) => `${typeName}.${name}`),
  );
}

describe("the policy", () => {
  test("names every method of the contracts, and none that is not there", () => {
    expect(Object.keys(POLICY).sort()).toEqual(namesOf(SERVICES).sort());
  });

  test("gives the engine's services to engines alone", () => {
    for (const name of namesOf(ENGINE_SERVICES)) expect(POLICY[name]).toEqual(["engine"]);
  });

  test("lets nobody but an approver answer, and nobody but an admin erase or export", () => {
    expect(POLICY["toolmark.v1.ApprovalService.AnswerAsk"]).toEqual(["approver"]);
    expect(POLICY["toolmark.v1.SessionService.EraseSession"]).toEqual(["admin"]);
    expect(POLICY["toolmark.v1.SessionService.ExportSession"]).toEqual(["admin"]);
  });

  test("that misses a method of a served service stops the start, handled or not", () => {
    const handlers: Implementation<typeof InfoService> = {};
    const binding = [bindService(InfoService, handlers)];
    expect(() => resolvePolicy(binding, {})).toThrow(PolicyMissingError);
    const roles = resolvePolicy(binding, POLICY).get(InfoService.method.getServerInfo);
    expect(roles).toContain("reader");
  });
});
