/**
 * An iterator that can be asked for what it has at hand. Between its items nothing waits: a stream that is idle keeps
 * no promise, and one that is woken gives its item at once.
 */
export interface AtHand<Item> {
  /** The next item if it is at hand. Else `next()` tells what there is, the end of the stream and faults too. */
  takeNow(): Item | undefined;
  /**
   * Whether there is nothing to do until something happens: then `wake` is called once, when it may have, and also when
   * the call is aborted. If it is false, `next()` is to be asked.
   */
  idle(wake: () => void): boolean;
}

/** An iterator that may be one of those. */
export type MaybeAtHand<Item> = AsyncIterator<Item> & Partial<AtHand<Item>>;
