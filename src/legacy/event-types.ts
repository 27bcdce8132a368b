/** Types that only tell of a run that is at work, in a way that no record keeps. */
const AT_WORK: ReadonlySet<string> = new Set([
  ...["turn.end", "model.retry", "reasoning.delta", "tool.progress", "tool.result.available"],
  ...["request.manifest", "network.attempt", "provider.route"],
]);

/** Types that tell neither of calls nor of a run at work. */
const ASIDE: ReadonlySet<string> = new Set([
  ...["session.init", "compaction", "no_progress", "recover_notice", "control.refused"],
  ...["schedule.fired", "schedule.skipped", "schedule.failed", "steer", "steer.outcome"],
]);

/** Whether an event of this type shows that its run went on. */
export function isAtWork(type: string): boolean {
  return AT_WORK.has(type);
}

/** Whether a type without a payload that is read is known, so that its events can be left out. */
export function isBookkeeping(type: string): boolean {
  return AT_WORK.has(type) || ASIDE.has(type);
}
