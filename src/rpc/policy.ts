import type { DescMethod } from "@bufbuild/protobuf";
import type { Role } from "../domain/principal.js";
import type { Binding } from "./call.js";

const ANY: readonly Role[] = ["engine", "approver", "reader", "admin"];
const ENGINE: readonly Role[] = ["engine"];
const APPROVER: readonly Role[] = ["approver"];
const ADMIN: readonly Role[] = ["admin"];

/** The roles of which a caller needs one, for every method by its full name. */
export type Policy = Readonly<Record<string, readonly Role[]>>;

export const POLICY: Policy = {
  "toolmark.v1.InfoService.GetServerInfo": ANY,

  "toolmark.v1.SessionService.CreateSession": ENGINE,
  "toolmark.v1.SessionService.GetSession": ANY,
  "toolmark.v1.SessionService.ListSessions": ANY,
  "toolmark.v1.SessionService.EndSession": ENGINE,
  "toolmark.v1.SessionService.ForkSession": ENGINE,
  "toolmark.v1.SessionService.CompactSession": ENGINE,
  "toolmark.v1.SessionService.EraseSession": ADMIN,
  "toolmark.v1.SessionService.ExportSession": ADMIN,
  "toolmark.v1.SessionService.ImportSession": ADMIN,
  "toolmark.v1.SessionService.VerifySession": ADMIN,

  "toolmark.v1.HistoryService.GetToolCall": ANY,
  "toolmark.v1.HistoryService.ListToolCalls": ANY,
  "toolmark.v1.HistoryService.GetHook": ANY,
  "toolmark.v1.HistoryService.ListHooks": ANY,
  "toolmark.v1.HistoryService.GetReviewDetail": ANY,
  "toolmark.v1.HistoryService.GetAuthorization": ANY,
  "toolmark.v1.HistoryService.ListAuthorizations": ANY,
  "toolmark.v1.HistoryService.ReadBody": ANY,
  "toolmark.v1.HistoryService.ListEvents": ANY,
  "toolmark.v1.HistoryService.WatchEvents": ANY,
  "toolmark.v1.HistoryService.GetTranscript": ANY,

  "toolmark.v1.ApprovalService.ListAsks": ANY,
  "toolmark.v1.ApprovalService.GetAsk": ANY,
  "toolmark.v1.ApprovalService.AnswerAsk": APPROVER,
  "toolmark.v1.ApprovalService.WatchAsks": ANY,
  "toolmark.v1.ApprovalService.GetReceipt": ANY,
  "toolmark.v1.ApprovalService.ListReceipts": ANY,

  "toolmark.engine.v1.RunService.BeginRun": ENGINE,
  "toolmark.engine.v1.RunService.EndRun": ENGINE,
  "toolmark.engine.v1.RunService.Apply": ENGINE,

  "toolmark.engine.v1.CallService.AcceptTurn": ENGINE,
  "toolmark.engine.v1.CallService.AmendToolCall": ENGINE,
  "toolmark.engine.v1.CallService.StartToolCall": ENGINE,
  "toolmark.engine.v1.CallService.RecordResult": ENGINE,
  "toolmark.engine.v1.CallService.ReconcileToolCall": ENGINE,
  "toolmark.engine.v1.CallService.OpenAsk": ENGINE,
  "toolmark.engine.v1.CallService.AwaitAsk": ENGINE,
  "toolmark.engine.v1.CallService.WithdrawAsk": ENGINE,
  "toolmark.engine.v1.CallService.SettleAsk": ENGINE,
  "toolmark.engine.v1.CallService.ParkToolCall": ENGINE,
  "toolmark.engine.v1.CallService.SettleAuthorization": ENGINE,

  "toolmark.engine.v1.EvidenceService.RecordMessage": ENGINE,
  "toolmark.engine.v1.EvidenceService.WriteBody": ENGINE,
  "toolmark.engine.v1.EvidenceService.PublishHook": ENGINE,
  "toolmark.engine.v1.EvidenceService.PublishReview": ENGINE,

  "toolmark.engine.v1.ReplayService.AcceptProviderTurn": ENGINE,
  "toolmark.engine.v1.ReplayService.GetReplay": ENGINE,
  "toolmark.engine.v1.ReplayService.ProjectReplay": ENGINE,

  "grpc.reflection.v1.ServerReflection.ServerReflectionInfo": ANY,
  "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo": ANY,
};

export type MethodRoles = ReadonlyMap<DescMethod, readonly Role[]>;

/** A method is served that nobody decided who may call. It stops the start. */
export class PolicyMissingError extends Error {
  override readonly name = "PolicyMissingError";

  constructor(readonly methods: readonly string[]) {
    super(`no policy says who may call ${methods.join(", ")}`);
  }
}

/** Finds the roles of every method to be served, or throws if one has no policy. */
export function resolvePolicy(binding: Binding, policy: Policy): MethodRoles {
  const rolesOf = new Map<DescMethod, readonly Role[]>();
  const missing: string[] = [];
  for (const { method, name } of binding.flatMap(({ methods }) => methods)) {
    const roles = policy[name];
    if (roles === undefined) missing.push(name);
    else rolesOf.set(method, roles);
  }
  if (missing.length > 0) throw new PolicyMissingError(missing);
  return rolesOf;
}
