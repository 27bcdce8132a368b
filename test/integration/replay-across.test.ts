import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { toolNameFor } from "../../src/provider/tool-name.js";
import { isReplayedOver } from "../../src/provider/wires.js";
import { allCalls, complete, given } from "../support/conversation.js";
import { parseLossless } from "../support/lossless-json.js";
import { projectedSteps, type ProjectedStep } from "../support/projected-request.js";
import { readRecordedReplays, type RecordedReplay } from "../support/recorded-replays.js";
import { canonicalText } from "../support/replay-comparison.js";
import { ReplayedConversation } from "../support/replayed-conversation.js";
import { acceptResponse, readReplay, say, WIRES, type SpokenWire } from "../support/replaying.js";
import { checkRequests, type RequestOfWire } from "../support/request-schemas.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { showRequest, type ShownRequest } from "../support/shown-request.js";
import {
  holdConversation,
  SEAL,
  SPOKEN_TURNS,
  SYSTEM_TEXT,
  USER_TEXTS,
} from "../support/spoken-conversation.js";

const { ANTHROPIC_MESSAGES, GEMINI, MISTRAL } = ProviderWire;
const SETUP_TIMEOUT_MS = 120_000;

const RECORDED = readRecordedReplays();
if (RECORDED === undefined) {
  process.stdout.write("no recorded traffic: none goes to another wire\n");
}

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService();
  clients = service.clients();
});

afterAll(() => service.stop());

/** A request for a wire, of a session that came from another or from several. */
interface CrossRequest {
  readonly name: string;
  readonly from: ProviderWire | undefined;
  readonly to: SpokenWire;
  readonly sessionId: string;
  readonly shown: ShownRequest;
}

async function crossRequests(
  name: string,
  from: ProviderWire | undefined,
  sessionId: string,
  provider?: string,
): Promise<CrossRequest[]> {
  const requests: CrossRequest[] = [];
  for (const to of WIRES) {
    const shown = await showRequest(clients, sessionId, to, provider);
    requests.push({ name: `${name} to ${ProviderWire[to]}`, from, to, sessionId, shown });
  }
  return requests;
}

function requestOf({ from, to, shown }: CrossRequest): RequestOfWire {
  return {
    ...{
      wire: to,
      itemsJson: shown.items,
      isReplay: from !== undefined && isReplayedOver(from, to),
    },
    ...(shown.system === "" ? {} : { systemJson: shown.system }),
  };
}

/** What the packages of the providers find wrong, by request. */
function schemaFaults(requests: readonly CrossRequest[]): string[] {
  return checkRequests(requests.map(requestOf)).flatMap((faults, index) =>
    faults.map((fault) => `${requests[index]?.name}: ${fault}`),
  );
}

/** Every call of the session is in the request, in its place, with its own name, arguments and id. */
async function expectIdentities({ to, shown, sessionId }: CrossRequest): Promise<void> {
  const calls = await allCalls(clients, sessionId);
  expect(shown.calls.map(({ name }) => toolNameFor(name))).toEqual(
    calls.map(({ toolName }) => toolNameFor(toolName)),
  );
  const written = calls.map(({ proposed }) =>
    Buffer.from(given(proposed?.data, "data")).toString(),
  );
  expect(shown.calls.map(({ args }) => sameJson(args))).toEqual(
    written.map((text) => sameJson(JSON.stringify(JSON.parse(text === "" ? "{}" : text)))),
  );
  const ids = shown.ids.filter((id) => id !== undefined);
  expect(new Set(ids).size).toBe(ids.length);
  if (to !== GEMINI) expect(ids).toHaveLength(calls.length);
  for (const { toolCallId } of calls) expect(shown.items).not.toContain(toolCallId);
}

/** The arguments, whether a reader has kept their numbers or not. */
function sameJson(text: string): string {
  return canonicalText(parseLossless(JSON.stringify(JSON.parse(text))));
}

function saidBy(steps: readonly ProjectedStep[], by: string): string {
  return steps.flatMap((step) => (step.kind === "said" && step.by === by ? step.json : [])).join();
}

describe("a conversation over one wire goes to every other", () => {
  const requests: CrossRequest[] = [];

  beforeAll(async () => {
    for (const from of WIRES) {
      const { sessionId } = await holdConversation(clients, () => from);
      requests.push(...(await crossRequests(ProviderWire[from], from, sessionId)));
    }
    // Each turn over a wire of its own, twice so that each wire has turns of others before and behind its own.
    for (const shift of [0, 1, 2, 3, 4]) {
      const wireAt = (number: number) => given(WIRES[(number + shift) % WIRES.length], "wire");
      const { sessionId } = await holdConversation(clients, wireAt);
      requests.push(...(await crossRequests(`mixed ${shift}`, undefined, sessionId)));
    }
  }, SETUP_TIMEOUT_MS);

  test(
    "in requests that the packages of the providers take",
    () => {
      const foreign = requests.filter(({ from }) => from !== undefined);
      expect(foreign).toHaveLength(25);
      expect(schemaFaults(foreign)).toEqual([]);
    },
    SETUP_TIMEOUT_MS,
  );

  test(
    "for another provider too, without what only the first one can read",
    async () => {
      const others: CrossRequest[] = [];
      for (const { from, to, sessionId } of requests) {
        if (from !== to) continue;
        const name = `${ProviderWire[from]} of another provider`;
        others.push(...(await crossRequests(name, undefined, sessionId, "another")));
      }
      expect(others).toHaveLength(25);
      expect(schemaFaults(others)).toEqual([]);
      for (const { shown } of others) {
        expect(shown.items).not.toContain(SEAL);
        expect(shown.items).not.toContain("two clocks");
      }
      for (const request of others) await expectIdentities(request);
    },
    SETUP_TIMEOUT_MS,
  );

  test("with every call, its arguments and its result", async () => {
    for (const request of requests) {
      await expectIdentities(request);
      const { to, shown } = request;
      const wanted = SPOKEN_TURNS.flatMap(({ calls }) => calls);
      expect(shown.results).toHaveLength(wanted.length);
      for (const [index, { result, isError }] of wanted.entries()) {
        const { content, isError: shownError } = given(shown.results[index], "result");
        const isObject = result.startsWith("{") && to === GEMINI;
        const said = isObject ? result : JSON.stringify(result);
        expect(content).toContain(said);
        if (to === ANTHROPIC_MESSAGES || to === GEMINI) expect(shownError).toBe(isError);
      }
    }
  });

  test("with every text, each from who said it", () => {
    for (const { to, shown } of requests) {
      const steps = projectedSteps(to, shown.items);
      const assistant = saidBy(steps, "assistant");
      for (const { text } of SPOKEN_TURNS) {
        expect(assistant).toContain(JSON.stringify(text).slice(1, -1));
      }
      for (const text of USER_TEXTS) expect(saidBy(steps, "user")).toContain(text);
      expect(shown.system + saidBy(steps, "system")).toContain(SYSTEM_TEXT);
    }
  });

  test("with its thoughts and seals only where it came from, where nothing of it has changed", async () => {
    for (const { from, to, sessionId, shown } of requests) {
      if (from === undefined) continue;
      if (!isReplayedOver(from, to)) {
        expect(shown.items).not.toContain(SEAL);
        expect(shown.items).not.toContain("two clocks");
      }
      if (from !== to) continue;
      for (const { items } of await readReplay(clients, sessionId)) {
        expect(shown.items).toContain(items.startsWith("[") ? items.slice(1, -1) : items);
      }
      expect(shown.items.includes("two clocks")).toBe(from !== MISTRAL);
    }
  });
});

describe("a recorded conversation goes to every wire", () => {
  const requests: CrossRequest[] = [];

  /** The calls of the last response have no result there. */
  async function play(recorded: RecordedReplay): Promise<string> {
    const played = new ReplayedConversation(clients, recorded);
    for (const step of recorded.steps) {
      await played.request(step);
      await played.response(step);
    }
    return played.sessionId;
  }

  beforeAll(async () => {
    for (const recorded of RECORDED ?? []) {
      const sessionId = await play(recorded);
      requests.push(...(await crossRequests(recorded.file, recorded.wire, sessionId)));
    }
  }, SETUP_TIMEOUT_MS);

  test(
    "in requests that the packages of the providers take",
    () => {
      const foreign = requests.filter(({ from, to }) => from !== to);
      expect(foreign).toHaveLength((RECORDED ?? []).length * (WIRES.length - 1));
      expect(schemaFaults(foreign)).toEqual([]);
    },
    SETUP_TIMEOUT_MS,
  );

  test("with every call under its own id, name and arguments", async () => {
    for (const request of requests) await expectIdentities(request);
  });

  test("though one id came twice: both calls keep their own identity", () => {
    const repeated = requests.filter(({ name }) =>
      /openai-responses\/005|anthropic-messages\/003/.test(name),
    );
    expect(repeated).toHaveLength(RECORDED === undefined ? 0 : 2 * WIRES.length);
    for (const { shown } of repeated) {
      const ids = shown.ids.filter((id) => id !== undefined);
      expect(shown.calls.length).toBeGreaterThan(1);
      expect(new Set(ids).size).toBe(ids.length);
      const contents = shown.results.map(({ content }) => content);
      expect(new Set(contents).size).toBe(contents.length);
    }
  });

  test(
    "though another provider goes on with it",
    async () => {
      const found = (file: string) =>
        given(
          (RECORDED ?? []).find((each) => each.file === file),
          file,
        );
      const mixed: CrossRequest[] = [];
      for (const first of RECORDED === undefined
        ? []
        : ["gemini/001.json", "openai-responses/001.json"]) {
        const sessionId = await play(found(first));
        await goOn(sessionId, found("anthropic-messages/003.json"));
        mixed.push(...(await crossRequests(`${first} and on`, undefined, sessionId)));
      }
      for (const request of mixed) await expectIdentities(request);
      for (const { shown } of mixed) expect(shown.calls).toHaveLength(3);
      expect(schemaFaults(mixed)).toEqual([]);
    },
    SETUP_TIMEOUT_MS,
  );

  /** Takes the responses of another recording into a session. */
  async function goOn(sessionId: string, { wire, steps }: RecordedReplay): Promise<void> {
    const [{ runId }] = (await allCalls(clients, sessionId)) as [ToolCall];
    const run = { sessionId, runId };
    for (const { response } of steps) {
      await say(clients, run, "Go on.");
      const { toolCalls } = await acceptResponse(clients, run, wire, response);
      for (const { toolCallId } of toolCalls) await complete(clients, run, toolCallId, "went on");
    }
  }
});
