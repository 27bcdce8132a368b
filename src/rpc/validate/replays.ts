import type {
  GetReplayRequest,
  ProjectReplayRequest,
} from "../../../gen/toolmark/engine/v1/replay_service_pb.js";
import { checkEnum, checkId, checkOptionalText, type Checked } from "./checks.js";
import { PROVIDER_BYTES, PROVIDER_WIRES } from "./commands.js";

export function checkGetReplay({ sessionId }: GetReplayRequest): Checked {
  return checkId(sessionId, "", "session_id");
}

export function checkProjectReplay(request: ProjectReplayRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkEnum(request.wire, "", "wire", PROVIDER_WIRES) ??
    checkOptionalText(request.provider, "", "provider", PROVIDER_BYTES)
  );
}
