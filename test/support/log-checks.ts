import { toBinary } from "@bufbuild/protobuf";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";

/** What of an event says where it stands. */
export type Place = Pick<Event, "sequence" | "position" | "revision">;

/** What is wrong with the order of a session's log, one line each. */
export function orderFaults(log: readonly Place[]): string[] {
  const faults: string[] = [];
  let position = 0n;
  let revision = 0n;
  for (const [index, event] of log.entries()) {
    const sequence = BigInt(index + 1);
    if (event.sequence !== sequence) faults.push(`${event.sequence} stands where ${sequence} must`);
    if (event.position <= position) faults.push(`position ${event.position} does not rise`);
    ({ position } = event);
    if (event.revision === undefined) continue;
    if (event.revision <= revision) faults.push(`revision ${event.revision} does not rise`);
    ({ revision } = event);
  }
  return faults;
}

/** A record that a writer was told of. */
export interface Acknowledged {
  readonly id: string;
  readonly revision: bigint | undefined;
}

/** What was acknowledged and is not in the log exactly once as it was told, one line each. */
export function acknowledgementFaults(
  acknowledged: readonly Acknowledged[],
  log: readonly Event[],
): string[] {
  const logged = new Map<string, bigint[]>();
  for (const { record, revision } of log) {
    if (record?.record.case !== "hook" || revision === undefined) continue;
    const id = record.record.value.hookId;
    logged.set(id, [...(logged.get(id) ?? []), revision]);
  }
  const ids = new Set(acknowledged.map(({ id }) => id));
  const lost = acknowledged.flatMap(({ id, revision }) => {
    const revisions = logged.get(id) ?? [];
    return revisions.length === 1 && revisions[0] === revision
      ? []
      : [`${id} was told as ${revision ?? "none"} and is logged as ${revisions.join(",")}`];
  });
  const told = ids.size === acknowledged.length ? [] : ["an id was told twice"];
  const unknown = [...logged.keys()].filter((id) => !ids.has(id)).map((id) => `${id} was not told`);
  return [...lost, ...told, ...unknown];
}

/** What a reader who polls from where it stands was not told, or told wrongly, one line each. */
export function pollFaults(polls: readonly (readonly Event[])[], log: readonly Event[]): string[] {
  const told = polls.flat();
  const faults = orderFaults(told);
  for (let index = 0; index < Math.max(told.length, log.length); index += 1) {
    if (encoded(told[index]) === encoded(log[index])) continue;
    const { sequence } = told[index] ?? log[index] ?? { sequence: 0n };
    faults.push(`${sequence} was told otherwise than it is logged`);
  }
  return faults;
}

function encoded(event: Event | undefined): string {
  return event === undefined ? "" : Buffer.from(toBinary(EventSchema, event)).toString("base64");
}
