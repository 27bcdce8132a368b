import type { ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import type { ShownAsk } from "../../gen/toolmark/v1/approval_service_pb.js";
import type { Receipt, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { known, refusalOf } from "./harness.js";
import type { Clients } from "./stage.js";

/** A person with an inbox: is shown what is asked, and answers exactly that. */
export class Person {
  #clicks = 0;

  constructor(readonly clients: Clients) {}

  async inbox(): Promise<ShownAsk[]> {
    return (await this.clients.approvals.listAsks({})).asks;
  }

  async answer(shown: ShownAsk, verdict: Verdict): Promise<Receipt> {
    return known((await this.#answer(shown, verdict)).receipt);
  }

  /** Answers what somebody has answered already, and returns why that was refused. */
  answerTooLate(shown: ShownAsk, verdict: Verdict): Promise<ErrorInfo> {
    return refusalOf(this.#answer(shown, verdict));
  }

  #answer({ ask, answerToken }: ShownAsk, verdict: Verdict) {
    const { origin, askId, toolCallId } = known(ask);
    this.#clicks += 1;
    const requestId = `click-${this.#clicks}`;
    const references = { sessionId: known(origin).sessionId, askId, toolCallId };
    return this.clients.approvals.answerAsk({ requestId, ...references, answerToken, verdict });
  }
}
