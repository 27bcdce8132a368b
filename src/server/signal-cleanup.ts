const SIGNALS = ["SIGINT", "SIGTERM"] as const;
type Signal = (typeof SIGNALS)[number];

/** Does the work; a signal meanwhile cleans up first and then ends the process as the signal would have. */
export function cleaningUpOnSignal<Answer>(
  cleanUp: () => void,
  work: () => Promise<Answer>,
): Promise<Answer> {
  return hearing((signal, stopHearing) => {
    cleanUp();
    stopHearing();
    process.kill(process.pid, signal);
  }, work);
}

/** Does work that is not to be cut off for no need: a signal meanwhile ends the process after it. */
export async function holdingSignals<Answer>(work: () => Promise<Answer>): Promise<Answer> {
  let held: Signal | undefined;
  try {
    return await hearing((signal) => {
      held = signal;
    }, work);
  } finally {
    if (held !== undefined) process.kill(process.pid, held);
  }
}

async function hearing<Answer>(
  onSignal: (signal: Signal, stopHearing: () => void) => void,
  work: () => Promise<Answer>,
): Promise<Answer> {
  const listeners = SIGNALS.map((signal) => {
    const listener = (): void => {
      onSignal(signal, stopHearing);
    };
    process.on(signal, listener);
    return { signal, listener };
  });
  const stopHearing = (): void => {
    for (const { signal, listener } of listeners) process.off(signal, listener);
  };
  try {
    return await work();
  } finally {
    stopHearing();
  }
}
