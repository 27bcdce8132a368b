import { jsonSpan, type JsonPath } from "./json-span.js";
import { readRecordedTexts } from "./recorded-files.js";

/** One request and its response as JSON texts. */
export interface RecordedBodies {
  readonly request: string;
  readonly response: string;
}

/** The texts of one recorded exchange. */
export interface RecordedConversation {
  /** Path below the folder, for example `gemini/001.json`. */
  readonly file: string;
  /** Whether the texts are those that were sent, byte for byte. Else they are values of the recording. */
  readonly isRaw: boolean;
  /** Number of calls in each response as the recording itself states it. */
  readonly callsPerResponse: readonly number[];
  readonly steps: readonly RecordedBodies[];
}

interface RecordedFile {
  readonly calls_per_response: readonly number[];
  readonly steps: readonly { readonly request_raw?: string; readonly response_raw?: string }[];
}

/** The recorded conversations of a wire in the order of their files, or nothing if there is no such folder. */
export function recordedConversations(wire: string): readonly RecordedConversation[] | undefined {
  return readRecordedTexts()
    ?.filter(({ file }) => file.startsWith(`${wire}/`))
    .map(({ file, text }) => conversationOf(file, text));
}

function conversationOf(file: string, text: string): RecordedConversation {
  const { calls_per_response: callsPerResponse, steps } = JSON.parse(text) as RecordedFile;
  return {
    file,
    isRaw: steps.every(({ response_raw: raw }) => raw !== undefined),
    callsPerResponse,
    steps: steps.map(({ request_raw: request, response_raw: response }, index) => ({
      request: request ?? written(text, ["steps", index, "request"]),
      response: response ?? written(text, ["steps", index, "response"]),
    })),
  };
}

function written(text: string, path: JsonPath): string {
  const span = jsonSpan(text, path);
  if (span === undefined) throw new Error(`the recording has nothing at ${path.join(".")}`);
  return text.slice(span.start, span.end);
}
