import * as fc from "fast-check";
import { describe, expect, it } from "vitest";

import { jsonMember, type JsonNode } from "../../src/domain/json-text.js";
import { memberWithKey } from "../../src/provider/json-members.js";
import { JsonSplice } from "../../src/provider/json-splice.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { spanOf } from "../support/wire-samples.js";

/** A text after an edit of its value. */
function spliced(text: string, edit: (splice: JsonSplice, root: JsonNode) => void): string {
  const span = spanOf(text);
  const splice = new JsonSplice(span);
  edit(splice, span.node);
  return splice.text(span.node);
}

function withoutMembers(text: string, ...keys: readonly string[]): string {
  return spliced(text, (splice, root) => {
    for (const key of keys) splice.remove(memberWithKey(root, key)!);
  });
}

describe("A spliced JSON text", () => {
  it("is as it was written without edits, also inside a larger text", () => {
    const span = spanOf(` { "a" : [ 1.0 , {"b":1e400} ] } `);

    const splice = new JsonSplice(span);

    expect(splice.text(span.node)).toBe(`{ "a" : [ 1.0 , {"b":1e400} ] }`);
    expect(splice.text(jsonMember(span.node, "a")!)).toBe(`[ 1.0 , {"b":1e400} ]`);
  });

  it("has another value in the place of one and everything else as it was written", () => {
    expect(
      spliced(`{ "a" : 1.0 , "b":"\\u0041" }`, (splice, root) => {
        splice.replace(jsonMember(root, "a")!, `"new"`);
      }),
    ).toBe(`{ "a" : "new" , "b":"\\u0041" }`);
  });

  it.each([
    [`{"a":1,"b":2,"c":3}`, ["a"], `{"b":2,"c":3}`],
    [`{"a":1,"b":2,"c":3}`, ["b"], `{"a":1,"c":3}`],
    [`{"a":1,"b":2,"c":3}`, ["c"], `{"a":1,"b":2}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "b"], `{"c":3}`],
    [`{"a":1,"b":2,"c":3}`, ["b", "c"], `{"a":1}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "c"], `{"b":2}`],
    [`{"a":1,"b":2,"c":3}`, ["a", "b", "c"], `{}`],
    [`{ "a" : 1 , "b" : 2 }`, ["a"], `{ "b" : 2 }`],
    [`{ "a" : 1 , "b" : 2 }`, ["b"], `{ "a" : 1 }`],
  ])("%s without the members %j is %s", (text, keys, expected) => {
    expect(withoutMembers(text, ...keys)).toBe(expected);
  });

  it("loses elements of an array with their commas", () => {
    expect(
      spliced("[1, 2, 3]", (splice, root) => {
        splice.remove(root.children![0]!);
        splice.remove(root.children![1]!);
      }),
    ).toBe("[3]");
  });

  it.each([
    [`{}`, [], `{"new":1}`],
    [`{"a":1}`, [], `{"new":1,"a":1}`],
    [`{ "a":1}`, ["a"], `{"new":1 }`],
    [`{"a":1,"b":2}`, ["a"], `{"new":1,"b":2}`],
  ])("%s with a new member and without %j is %s", (text, removed, expected) => {
    expect(
      spliced(text, (splice, root) => {
        splice.insert(root, `"new":1`);
        for (const key of removed) splice.remove(memberWithKey(root, key)!);
      }),
    ).toBe(expected);
  });

  it("takes edits inside a value that is taken away or replaced along", () => {
    const edit = (outer: (splice: JsonSplice, root: JsonNode) => void) =>
      spliced(`{"a":{"b":1},"c":2}`, (splice, root) => {
        const inner = jsonMember(root, "a")!;
        splice.replace(jsonMember(inner, "b")!, "9");
        splice.insert(inner, `"z":0`);
        outer(splice, root);
      });

    expect(edit(() => undefined)).toBe(`{"a":{"z":0,"b":9},"c":2}`);
    expect(
      edit((splice, root) => {
        splice.replace(jsonMember(root, "a")!, "0");
      }),
    ).toBe(`{"a":0,"c":2}`);
    expect(
      edit((splice, root) => {
        splice.remove(memberWithKey(root, "a")!);
      }),
    ).toBe(`{"c":2}`);
  });

  it("is asked for one value after another, with more edits in between", () => {
    const span = spanOf(`[{"a":1},{"a":2}]`);
    const splice = new JsonSplice(span);
    const [first, second] = span.node.children!;

    splice.replace(jsonMember(first!, "a")!, "7");
    expect(splice.text(first!)).toBe(`{"a":7}`);
    splice.replace(jsonMember(second!, "a")!, "8");

    expect(splice.text(second!)).toBe(`{"a":8}`);
    expect(splice.text(span.node)).toBe(`[{"a":7},{"a":8}]`);
  });

  it(seededTitle("is the value that the same edits of the value itself give"), () => {
    const values = fc.array(fc.tuple(fc.jsonValue(), fc.constantFrom("keep", "remove", "replace")));
    fc.assert(
      fc.property(values, fc.constantFrom(undefined, 1, "\t"), (edited, indent) => {
        const text = JSON.stringify(
          edited.map(([value]) => value),
          undefined,
          indent,
        );
        const after = spliced(text, (splice, root) => {
          for (const [index, [, edit]] of edited.entries()) {
            if (edit === "remove") splice.remove(root.children![index]!);
            if (edit === "replace") splice.replace(root.children![index]!, `"new"`);
          }
        });

        const expected = edited.flatMap(([value, edit]) =>
          edit === "remove" ? [] : [edit === "replace" ? "new" : value],
        );
        expect(JSON.parse(after)).toEqual(JSON.parse(JSON.stringify(expected)));
      }),
      propertyOptions(1_000),
    );
  });
});
