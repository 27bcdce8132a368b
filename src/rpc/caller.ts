import type { DescMethod } from "@bufbuild/protobuf";
import type { Caller, Role, RoleScope } from "../domain/principal.js";
import type { Viewer } from "../ledger/ask-reader.js";
import { methodName, type CallContext } from "./call.js";
import { POLICY } from "./policy.js";

const ROLES = new Map<DescMethod, readonly Role[]>();

function rolesOf(method: DescMethod): readonly Role[] {
  const known = ROLES.get(method);
  if (known !== undefined) return known;
  const roles = POLICY[methodName(method)] ?? [];
  ROLES.set(method, roles);
  return roles;
}

/** What tells the caller of a call. */
type CallerContext = Pick<CallContext, "principal" | "method">;

/** The caller of a method: reaches as far as the widest of its roles that allow the method. */
export function callerOf({ principal, method }: CallerContext): Caller {
  const { tenant, subject, roles } = principal;
  const isTenantWide = rolesOf(method).some((role) => roles[role] === "tenant");
  const scope: RoleScope = isTenantWide ? "tenant" : "own";
  return { tenant, subject, scope };
}

/** The caller of a method that shows asks, and as what they may answer them: as approvers only. */
export function viewerOf(context: CallerContext): Viewer {
  const { tenant, subject, roles } = context.principal;
  const scope = roles.approver;
  const approver = scope === undefined ? undefined : { tenant, subject, scope };
  return { caller: callerOf(context), approver };
}
