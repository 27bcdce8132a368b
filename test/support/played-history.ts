import { expect } from "vitest";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import type { HistoryEntry } from "../../src/domain/history.js";
import type { ReplayTarget } from "../../src/provider/project-history.js";
import {
  beginRun,
  bytes,
  endRun,
  freshRequestId,
  given,
  of,
  openRun,
  readSession,
  type CallInit,
  type OpenRun,
} from "./conversation.js";
import {
  namedCalls,
  responseOf,
  type GeneratedHistory,
  type GeneratedMessage,
  type GeneratedTurn,
  type NamedCall,
} from "./generated-histories.js";
import {
  markedData,
  ModelledHistory,
  pairingOf,
  projectEntries,
  TARGETS,
} from "./modelled-history.js";
import { acceptResponse, project, type ProjectedRequest } from "./replaying.js";
import type { Clients } from "./service.js";

const SUMMARY = "what was said before";

/** A generated history that a harness has recorded with a service. */
export class PlayedHistory {
  readonly #clients: Clients;
  readonly #history: GeneratedHistory;
  #run: OpenRun;
  readonly #toolCallIds: string[] = [];
  #archived: number | undefined;
  readonly #seen = new Map<ReplayTarget, ProjectedRequest>();
  /** As projected when the history was cut. */
  readonly #before = new Map<ReplayTarget, ProjectedRequest>();

  private constructor(clients: Clients, history: GeneratedHistory, run: OpenRun) {
    this.#clients = clients;
    this.#history = history;
    this.#run = run;
  }

  static async play(clients: Clients, history: GeneratedHistory): Promise<PlayedHistory> {
    const played = new PlayedHistory(clients, history, await openRun(clients));
    const { steps, archived = 0, cut } = history;
    for (const [index, step] of steps.entries()) {
      if (index === archived && index > 0) await played.#compact(index);
      if (index === cut && index >= archived) await played.#keepProjections();
      if (step.kind === "message") await played.#say(step);
      else await played.#take(step);
    }
    return played;
  }

  /** The projection is that of the history as it was made, and begins with what it was before. */
  async expectAsModelled(clients: Clients, target: ReplayTarget): Promise<void> {
    const projected = await project(clients, this.#run.sessionId, target.wire, target.provider);
    this.#seen.set(target, projected);
    const before = this.#before.get(target);
    if (before !== undefined) {
      expect(projected.items.startsWith(before.items.slice(0, -1))).toBe(true);
    }
    const { items, system = "" } = projectEntries(target, this.#modelled());
    expect(projected).toMatchObject({ items, system });
    for (const id of this.#toolCallIds) expect(projected.items).not.toContain(id);
  }

  async expectUnchanged(clients: Clients): Promise<void> {
    for (const [{ wire, provider }, seen] of this.#seen) {
      expect(await project(clients, this.#run.sessionId, wire, provider)).toEqual(seen);
    }
  }

  #modelled(): HistoryEntry[] {
    const model = new ModelledHistory(this.#history.steps, {
      toolCallId: (number) => given(this.#toolCallIds[number], "call"),
      known: (number, count) => this.#known(number, count),
    });
    return this.#archived === undefined ? model.entries : model.compacted(this.#archived, SUMMARY);
  }

  /** A later call has no id yet that a provider could hit upon. */
  #known(number: number, count: number): string | undefined {
    return count === 0 ? undefined : this.#toolCallIds[number % count];
  }

  async #say({ role, data, mediaType }: GeneratedMessage): Promise<void> {
    const command = { role, content: { data, mediaType } };
    await this.#clients.evidence.recordMessage({ ...of(this.#run), command });
  }

  async #take(turn: GeneratedTurn): Promise<void> {
    const count = this.#toolCallIds.length;
    const named = namedCalls(turn, (number) => this.#known(number, count));
    const { provider, wire } = turn;
    const said = provider === undefined ? {} : { provider };
    const { toolCalls } =
      wire === undefined
        ? await this.#clients.calls.acceptTurn({
            ...of(this.#run),
            command: { ...said, calls: named.map(newCall) },
          })
        : await acceptResponse(this.#clients, this.#run, wire, responseOf(wire, turn, named), said);
    for (const [index, { toolCallId }] of toolCalls.entries()) {
      await this.#record(toolCallId, given(named[index], "call"));
      this.#toolCallIds.push(toolCallId);
    }
    if (named.some(({ result }) => result === undefined)) await this.#cutOff();
  }

  async #record(toolCallId: string, { result }: NamedCall): Promise<void> {
    if (result === undefined) return;
    const { mediaType, isError } = result;
    const data = markedData(result, this.#toolCallIds.length);
    const value = { content: { data, mediaType }, isError };
    const command = { toolCallId, result: { case: "canonical" as const, value } };
    await this.#clients.calls.recordResult({ ...of(this.#run), command });
  }

  /** Calls that have no result get one when their run ends. */
  async #cutOff(): Promise<void> {
    await endRun(this.#clients, this.#run, { outcome: RunOutcome.INTERRUPTED });
    this.#run = await beginRun(this.#clients, this.#run.sessionId);
  }

  async #compact(archived: number): Promise<void> {
    const { sessionId } = this.#run;
    const { checkpoint } = await readSession(this.#clients, sessionId);
    const { sequence: throughSequence } = given(checkpoint, "checkpoint");
    const request = { sessionId, requestId: freshRequestId(), throughSequence, summary: SUMMARY };
    await this.#clients.sessions.compactSession(request);
    this.#archived = archived;
  }

  async #keepProjections(): Promise<void> {
    for (const target of TARGETS) {
      const { wire, provider } = target;
      const { sessionId } = this.#run;
      this.#before.set(target, await project(this.#clients, sessionId, wire, provider));
    }
  }
}

function newCall({ toolName, args, id, itemId }: NamedCall): CallInit {
  return { toolName, arguments: { data: bytes(args) }, pairing: pairingOf(id, itemId) };
}
