import type { ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  Ran,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { Harness, known, type ModelCall } from "./harness.js";
import type { Page } from "./page.js";
import { Person } from "./person.js";
import type { Stage } from "./stage.js";

const READ = { tool: "read_file", args: '{"path":"notes.md"}', providerId: "call_0" };
const SEARCH = { tool: "search", args: '{"query":"open invoices"}', providerId: "call_1" };
const REMOVE = { tool: "remove_file", args: '{"path":"archive"}', providerId: "call_2" };
const FETCH = { tool: "fetch_page", args: '{"page":1}', providerId: "call_4" };
const LIST = { tool: "list_files", args: "{}", providerId: "call_3" };
const SEND = { tool: "send_mail", args: '{"to":"Ada"}', providerId: "call_5" };
const READ_AGAIN = { ...READ, args: '{"path":"todo.md"}' };

/** One session of an agent, told step by step while it happens. */
export async function tellStory(stage: Stage, page: Page): Promise<void> {
  page.title("A session of an agent, recorded by a server on a temporary database");
  const harness = new Harness(await stage.start());
  const story = new Story(stage, harness, page);
  await story.parallelTurn();
  await story.repeatedProviderId();
  await story.blockedCall();
  await story.amendedCall();
  await story.completedProviderId();
  await story.question();
  await story.restart();
  await story.answer();
  await story.endOfRun();
  await story.lateResult();
  await story.account();
}

class Story {
  #read = "";
  #search = "";
  #remove = "";
  #send = "";

  constructor(
    readonly stage: Stage,
    readonly harness: Harness,
    readonly page: Page,
  ) {}

  async parallelTurn(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The model makes three calls in one response");
    await harness.begin("Clear up the notes");
    page.say(`session ${harness.sessionId}`);
    page.say(`run     ${harness.runId}`);
    const calls = await harness.acceptTurn(READ, SEARCH, REMOVE);
    [this.#read = "", this.#search = "", this.#remove = ""] = calls.map((call) => call.toolCallId);
    page.table(
      ["tool", "tool call id", "state", "arguments"],
      [READ, SEARCH, REMOVE].map(({ tool, args }, index) => {
        const { toolCallId = "", state = ToolCallState.UNSPECIFIED } = calls[index] ?? {};
        return [tool, toolCallId, ToolCallState[state], args];
      }),
    );
    page.say(
      "The ids are the service's own. Those of the provider (call_0, call_1, call_2) are kept apart: " +
        "no reader of the session is shown them.",
    );
  }

  async repeatedProviderId(): Promise<void> {
    const { harness, page } = this;
    page.chapter("Turns that repeat a provider id are refused as a whole");
    const before = await harness.session();
    const twice = await harness.refusedTurn(LIST, FETCH, LIST);
    const open = await harness.refusedTurn(READ_AGAIN);
    const after = await harness.session();
    page.table(
      ["provider ids", "refused as", "positions", "outstanding"],
      [refusedRow([LIST, FETCH, LIST], twice), refusedRow([READ_AGAIN], open)],
    );
    const written = (after.checkpoint?.sequence ?? 0n) - (before.checkpoint?.sequence ?? 0n);
    page.say(`The two turns have written ${written} events.`);
  }

  async blockedCall(): Promise<void> {
    const { harness, page } = this;
    page.chapter("A hook blocks a call");
    const hookId = await harness.block(this.#remove, "keep-archive", "the archive must stay");
    const call = await harness.call(this.#remove);
    page.table(
      ["record", "id", "says", "blocked by"],
      [
        ["hook keep-archive", hookId, "BLOCKED", ""],
        [
          `call ${call.toolName}`,
          call.toolCallId,
          ToolCallState[call.state],
          call.blockedByHookId ?? "",
        ],
      ],
    );
    page.say(`It did not run. The model is told: ${textOf(call.result?.content)}`);
  }

  async amendedCall(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The arguments of a call are changed before it starts");
    await harness.amend(this.#read, '{"path":"notes.md","max_lines":20}');
    await harness.start(this.#read);
    await harness.recordResult(this.#read, "pay the rent; call Ada");
    const call = await harness.call(this.#read);
    page.table(
      ["tool", "state", "proposed by the model", "effective"],
      [[call.toolName, ToolCallState[call.state], textOf(call.proposed), textOf(call.effective)]],
    );
    page.say(`It is still ${call.toolCallId}.`);
  }

  async completedProviderId(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The provider id of a completed call may come again");
    const [call] = await harness.acceptTurn(READ_AGAIN);
    page.table(
      ["provider id", "tool call id", "arguments"],
      [
        [READ.providerId, this.#read, READ.args],
        [READ_AGAIN.providerId, call?.toolCallId ?? "", READ_AGAIN.args],
      ],
    );
    page.say("The same provider id, two calls: neither can be taken for the other.");
  }

  async question(): Promise<void> {
    const { harness, page } = this;
    page.chapter("A person is asked before a call runs");
    const [call] = await harness.acceptTurn(SEND);
    this.#send = call?.toolCallId ?? "";
    const ask = await harness.ask(this.#send, "Send this mail?");
    const { state } = await harness.call(this.#send);
    page.table(
      ["tool", "state", "ask", "asks about arguments"],
      [[SEND.tool, ToolCallState[state], ask.askId, SEND.args]],
    );
    page.say("Until the ask is settled the call cannot be started.");
  }

  async answer(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The person answers, and clicks twice");
    const person = new Person(harness.clients);
    const [shown] = await person.inbox();
    const receipt = await person.answer(known(shown), Verdict.ALLOW_ONCE);
    const late = await person.answerTooLate(known(shown), Verdict.DENY);
    await harness.start(this.#send);
    await harness.recordResult(this.#send, "sent");
    const { spendState } = await harness.receipt(receipt.receiptId);
    page.table(
      ["click", "answered", "receipt", "now"],
      [
        [Verdict[Verdict.ALLOW_ONCE], "taken", receipt.receiptId, SpendState[spendState]],
        [Verdict[Verdict.DENY], late.reason, late.metadata["receipt_id"] ?? "", ""],
      ],
    );
    page.say("The allow was for this call with these arguments, and its start has used it up.");
  }

  async restart(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The server is killed while a call runs, and started again");
    await harness.start(this.#search);
    const before = await harness.calls();
    await this.stage.kill();
    harness.clients = await this.stage.start();
    const after = await harness.calls();
    page.table(
      ["tool", "before the kill", "after the restart", "state"],
      after.map((call, index) => [
        call.toolName,
        before[index]?.toolCallId ?? "",
        call.toolCallId,
        ToolCallState[call.state],
      ]),
    );
    const { activeRunId = "none" } = await harness.session();
    page.say(`The active run is still ${activeRunId}.`);
  }

  async endOfRun(): Promise<void> {
    const { harness, page } = this;
    page.chapter("The run ends, and every call ends with it");
    await harness.endRun([this.#search]);
    const ended = (await harness.calls()).filter(isSynthetic);
    page.table(
      ["tool", "state", "ran", "result, written by the service"],
      ended.map((call) => [
        call.toolName,
        ToolCallState[call.state],
        Ran[call.ran],
        textOf(call.result?.content),
      ]),
    );
    page.say("The harness said that search was cut off. The second read_file had never started.");
  }

  async lateResult(): Promise<void> {
    const { harness, page } = this;
    page.chapter("A result comes late");
    await harness.recordResult(this.#search, "2 open invoices");
    const call = await harness.call(this.#search);
    page.table(
      ["of the call", "what the record has"],
      [
        ["state", ToolCallState[call.state]],
        ["result", textOf(call.result?.content)],
        ["late result", textOf(call.lateResult?.content)],
      ],
    );
    page.say("It is kept as evidence. What the model was given stays what it was.");
  }

  async account(): Promise<void> {
    const { harness, page } = this;
    page.chapter("What the record says at the end");
    const calls = await harness.calls();
    page.table(
      ["tool", "tool call id", "revision", "state", "ran"],
      calls.map((call) => [
        call.toolName,
        call.toolCallId,
        String(call.revision ?? ""),
        ToolCallState[call.state],
        Ran[call.ran],
      ]),
    );
    const { checkpoint, highWater = 0n } = await harness.session();
    const chain = Buffer.from(checkpoint?.chain ?? []).toString("hex");
    page.say(`${checkpoint?.sequence ?? 0n} events, highest revision ${highWater}, chain head`);
    page.say(chain);
  }
}

function refusedRow(turn: readonly ModelCall[], { reason, metadata }: ErrorInfo): string[] {
  const providerIds = turn.map(({ providerId }) => providerId).join(" ");
  return [providerIds, reason, metadata["positions"] ?? "", metadata["tool_call_ids"] ?? ""];
}

function isSynthetic({ result }: ToolCall): boolean {
  return result?.kind === ToolResultKind.SYNTHETIC;
}

function textOf(body: Body | undefined): string {
  return Buffer.from(body?.data ?? []).toString();
}
