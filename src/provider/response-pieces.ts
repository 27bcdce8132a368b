import type { ItemCall, ItemsContent } from "./wire.js";

/** A piece of a response: a text, a call for the harness, or nothing that the harness has to know. */
export type ResponsePiece = string | ItemCall | undefined;

/** What the pieces of a response say together. Texts that something stands between are paragraphs. */
export function contentOfPieces(pieces: readonly ResponsePiece[]): ItemsContent {
  const paragraphs = [""];
  const calls: ItemCall[] = [];
  for (const piece of pieces) {
    if (typeof piece === "string") {
      paragraphs.push((paragraphs.pop() ?? "") + piece);
    } else {
      if (piece !== undefined) calls.push(piece);
      paragraphs.push("");
    }
  }
  return { text: paragraphs.filter((text) => text !== "").join("\n\n"), calls };
}
