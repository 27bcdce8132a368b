import { create } from "@bufbuild/protobuf";
import { StringValueSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { refuse } from "../../src/domain/refusal.js";
import type { Item } from "../../src/rpc/call.js";
import { RuledStream, type StreamRules } from "../../src/rpc/ruled-stream.js";
import type { AtHand } from "../../src/watch/at-hand.js";

const [ONE, TWO] = ["one", "two"].map((value) => create(StringValueSchema, { value }));
const REFUSAL = refuse(ErrorReason.INTERNAL, "a fault");
const FAULT = new Error("broken");

/** A source that tells how it was left. */
class Source {
  isLeft = false;
  isClosingBroken = false;

  constructor(private readonly end?: Error) {}

  async *items(): AsyncGenerator<Item> {
    try {
      for (const item of [ONE, TWO]) yield await Promise.resolve(item as Item);
      if (this.end !== undefined) throw this.end;
    } finally {
      this.isLeft = true;
      // eslint-disable-next-line no-unsafe-finally
      if (this.isClosingBroken) throw FAULT;
    }
  }
}

/** The rules of a call, each put around the stream by a layer of its own, and what they were told. */
function layered(source: Source, change: StreamRules["change"] = (item) => item) {
  const told: unknown[] = [];
  const answer = (fault: unknown): Item => {
    told.push(fault);
    return REFUSAL;
  };
  const ended = (name: string) => (last: Item | undefined, items: number) => {
    told.push([name, last, items]);
  };
  let stream = RuledStream.around(source.items(), { change });
  stream = RuledStream.around(stream, { answer });
  stream = RuledStream.around(stream, { ended: ended("inner") });
  stream = RuledStream.around(stream, { ended: ended("outer") });
  return { stream, told };
}

async function itemsOf(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

describe("a stream with rules", () => {
  test("that ends tells both layers its last item and how many there were, the inner one first", async () => {
    const { stream, told } = layered(new Source());
    expect(await itemsOf(stream)).toEqual([ONE, TWO]);
    expect(told).toEqual([
      ["inner", TWO, 2],
      ["outer", TWO, 2],
    ]);
  });

  test("that faults gives the answer as its last item, and counts it", async () => {
    const { stream, told } = layered(new Source(FAULT));
    expect(await itemsOf(stream)).toEqual([ONE, TWO, REFUSAL]);
    expect(told).toEqual([FAULT, ["inner", REFUSAL, 3], ["outer", REFUSAL, 3]]);
  });

  test("leaves its source when a rule refuses an item", async () => {
    const source = new Source();
    const { stream, told } = layered(source, (item) => {
      if (item === TWO) throw FAULT;
      return item;
    });
    expect(await itemsOf(stream)).toEqual([ONE, REFUSAL]);
    expect(source.isLeft).toBe(true);
    expect(told[0]).toBe(FAULT);
  });

  test("that is left leaves its source, and tells once", async () => {
    const source = new Source();
    const { stream, told } = layered(source);
    expect((await stream.next()).value).toBe(ONE);
    await stream.return();
    expect(source.isLeft).toBe(true);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    await stream.return();
    expect(told).toEqual([
      ["inner", ONE, 1],
      ["outer", ONE, 1],
    ]);
  });

  test("tells a fault that is met when it is left, and gives nothing for it", async () => {
    const source = new Source();
    source.isClosingBroken = true;
    const { stream, told } = layered(source);
    await stream.next();
    expect(await stream.return()).toEqual({ done: true, value: undefined });
    expect(told).toEqual([FAULT, ["inner", ONE, 1], ["outer", ONE, 1]]);
  });

  test("without an answer passes a fault on, and ends", async () => {
    const told: number[] = [];
    const ended = (_: Item | undefined, items: number) => void told.push(items);
    const stream = RuledStream.around(new Source(FAULT).items(), { ended });
    await expect(itemsOf(stream)).rejects.toBe(FAULT);
    expect(told).toEqual([2]);
  });

  test("keeps the order of rules that do not fit into one layer", async () => {
    const told: unknown[] = [];
    const ended = (last: Item | undefined) => void told.push(last);
    const inner = RuledStream.around(new Source().items(), { ended });
    const stream = RuledStream.around(inner, { change: () => REFUSAL });
    expect(await itemsOf(stream)).toEqual([REFUSAL, REFUSAL]);
    expect(told).toEqual([TWO]);
  });
});

/** A source that has both items at hand, and nothing after them until it is woken. */
class AtHandSource implements AsyncIterable<Item>, AtHand<Item> {
  readonly left = [ONE, TWO] as Item[];
  wake: (() => void) | undefined;
  isLeft = false;

  [Symbol.asyncIterator](): this & AsyncIterator<Item> {
    return this;
  }

  takeNow(): Item | undefined {
    return this.left.shift();
  }

  idle(wake: () => void): boolean {
    this.wake ??= wake;
    return true;
  }

  next(): Promise<IteratorResult<Item, undefined>> {
    return Promise.resolve({ done: true, value: undefined });
  }

  return(): Promise<IteratorResult<Item, undefined>> {
    this.isLeft = true;
    return this.next();
  }
}

describe("a stream that has items at hand", () => {
  test("gives them at once, and is asked for no more until it wakes", async () => {
    const source = new AtHandSource();
    const counts: number[] = [];
    const ended = (_: Item | undefined, items: number) => void counts.push(items);
    const stream = RuledStream.around(source, { ended });
    expect([stream.take(), stream.take()]).toEqual([ONE, TWO]);
    const next = stream.take();
    source.left.push(ONE as Item);
    source.wake?.();
    expect(await next).toBe(ONE);
    await stream.return();
    expect(counts).toEqual([3]);
  });

  test("ends when there is nothing more after it wakes", async () => {
    const source = new AtHandSource();
    source.left.length = 0;
    const stream = RuledStream.around(source, {});
    const next = stream.take();
    source.wake?.();
    expect(await next).toBeUndefined();
  });

  test("leaves its source when a rule refuses one, and gives the answer", async () => {
    const source = new AtHandSource();
    const change = (item: Item): Item => {
      if (item === TWO) throw FAULT;
      return item;
    };
    const told: unknown[] = [];
    const answer = (fault: unknown): Item => {
      told.push(fault);
      return REFUSAL;
    };
    const stream = RuledStream.around(RuledStream.around(source, { change }), { answer });
    expect(stream.take()).toBe(ONE);
    expect(await stream.take()).toBe(REFUSAL);
    expect(told).toEqual([FAULT]);
    expect(source.isLeft).toBe(true);
    expect(await stream.take()).toBeUndefined();
  });
});
