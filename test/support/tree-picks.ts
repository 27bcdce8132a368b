import type { ModelCall } from "./tree-model.js";

export function isUnanswered({ state }: ModelCall): boolean {
  return state !== "answered";
}

/** Mostly one of those that are liked. */
export function pickCall(
  calls: readonly ModelCall[],
  isLiked: (call: ModelCall) => boolean,
  pick: number,
): ModelCall | undefined {
  const liked = calls.filter(isLiked);
  return pickOf(pick % 6 === 0 || liked.length === 0 ? calls : liked, pick);
}

/** One of them. Absent if there is none. */
export function pickOf<T>(all: readonly T[], pick: number): T | undefined {
  return all[pick % Math.max(1, all.length)];
}
