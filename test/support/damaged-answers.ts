import { equals, type DescField, type DescMessage, type Message } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { OfflineAnswer, OfflineCall } from "./offline-service.js";

/**
 * What an answer of a damaged store is, beside the one of the sound store:
 * - `same`: byte for byte.
 * - `none`: a refusal or a fault.
 * - `reduced`: items that are left as they are, or shown without part of their content, or not at all.
 * - `repeated`: a command that was carried out again.
 * - `altered`: it says anything that is not so.
 */
export type AnswerKind = "same" | "none" | "reduced" | "repeated" | "altered";

export function kindOfAnswer(
  { method, request }: OfflineCall,
  original: OfflineAnswer,
  answer: OfflineAnswer,
): AnswerKind {
  if (original.kind !== "answered") throw new Error("the sound store gave no answer");
  if (answer.kind !== "answered") return "none";
  if (answer.messages === original.messages) return "same";
  if ("requestId" in request) return "repeated";
  const [found, expected] = [answer.items[0], original.items[0]];
  if (found === undefined || expected === undefined || !("nextPageToken" in found)) {
    return "altered";
  }
  return isReducedList(method.output, found, expected) ? "reduced" : "altered";
}

/** Whether a page has no item that is not one of another page, or less of it. */
function isReducedList(desc: DescMessage, found: Message, expected: Message): boolean {
  const field = desc.fields.find(({ fieldKind }) => fieldKind === "list");
  if (field?.fieldKind !== "list" || field.listKind !== "message") return false;
  const of = (page: Message): Message[] => [...(Reflect.get(page, field.localName) as Message[])];
  const originals = of(expected);
  return of(found).every((item) =>
    originals.some((original) => isReduced(field.message, item, original)),
  );
}

/** Whether every field that is set in one message has the same value in the other. */
function isReduced(desc: DescMessage, found: Message, expected: Message): boolean {
  const [one, other] = [reflect(desc, found), reflect(desc, expected)];
  return one.fields.every((field) => {
    if (!one.isSet(field)) return true;
    if (field.fieldKind === "message") {
      return (
        other.isSet(field) &&
        isReduced(field.message, valueOf(found, field), valueOf(expected, field))
      );
    }
    return equals(desc, only(desc, found, field), only(desc, expected, field));
  });
}

function valueOf(message: Message, { localName, oneof }: DescField): Message {
  const holder: unknown = oneof === undefined ? message : Reflect.get(message, oneof.localName);
  return Reflect.get(holder as object, oneof === undefined ? localName : "value") as Message;
}

/** A message with one field of another. */
function only(desc: DescMessage, message: Message, field: DescField): Message {
  const from = reflect(desc, message);
  const to = reflect(desc);
  if (from.isSet(field)) to.set(field, from.get(field));
  return to.message;
}
