import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { invariant } from "../../domain/invariant.js";
import type { Principal, Role } from "../../domain/principal.js";
import { refuse } from "../../domain/refusal.js";
import type { MethodRoles } from "../policy.js";
import type { Middleware } from "../reply.js";

/**
 * Refuses a caller without any of the roles that the method asks for. Whose sessions it may see is
 * decided below.
 */
export function policy(rolesOf: MethodRoles): Middleware {
  return (call, request, next) => {
    const roles = rolesOf.get(call.method);
    invariant(roles !== undefined, "every served method has a policy");
    if (holdsOne(call.principal, roles)) return next(call, request);
    const role = roles.join(",");
    return refuse(ErrorReason.ROLE_MISSING, `the method needs the role ${role}`, { role });
  };
}

function holdsOne(principal: Principal, roles: readonly Role[]): boolean {
  for (const role of roles) if (principal.roles[role] !== undefined) return true;
  return false;
}
