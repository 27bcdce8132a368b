import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";

/** What a projected request says, in its order. */
export type ProjectedStep =
  | {
      readonly kind: "call";
      readonly id: string | undefined;
      readonly name: string;
      /** As JSON text. Of a custom tool the text of its input. */
      readonly args: string;
      readonly isCustom: boolean;
    }
  | {
      readonly kind: "result";
      readonly id: string | undefined;
      /** Of wires that name the tool again. */
      readonly name: string | undefined;
      /** What the result says, as JSON text. */
      readonly content: string;
      readonly isError: boolean;
    }
  | { readonly kind: "said"; readonly by: "system" | "user" | "assistant"; readonly json: string };

export type ProjectedCallStep = Extract<ProjectedStep, { kind: "call" }>;
export type ProjectedResultStep = Extract<ProjectedStep, { kind: "result" }>;

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Of a string its value, of anything else its JSON. */
function argsOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? {});
}

/** The steps of the items of a request, by a parser that knows nothing of the service. */
export function projectedSteps(wire: ProviderWire, itemsJson: string): ProjectedStep[] {
  return (JSON.parse(itemsJson) as unknown[]).map(fieldsOf).flatMap((item) => {
    switch (wire) {
      case ProviderWire.OPENAI_RESPONSES:
        return [responsesStep(item)];
      case ProviderWire.ANTHROPIC_MESSAGES:
        return blocksOf(item["content"]).map((block) => anthropicStep(item["role"], block));
      case ProviderWire.GEMINI:
        return listOf(item["parts"]).map((part) => geminiStep(item["role"], fieldsOf(part)));
      default:
        return chatSteps(item);
    }
  });
}

/** The calls of a request, in its order. */
export function projectedCalls(wire: ProviderWire, itemsJson: string): ProjectedCallStep[] {
  return projectedSteps(wire, itemsJson).filter((step) => step.kind === "call");
}

export function projectedResults(wire: ProviderWire, itemsJson: string): ProjectedResultStep[] {
  return projectedSteps(wire, itemsJson).filter((step) => step.kind === "result");
}

function said(role: unknown, value: unknown): ProjectedStep {
  const isAssistant = role === "assistant" || role === "model" || role === undefined;
  const by = role === "system" || role === "user" ? role : isAssistant ? "assistant" : undefined;
  if (by === undefined) throw new Error(`an item is from ${String(role)}`);
  return { kind: "said", by, json: JSON.stringify(value) };
}

function resultStep(id: unknown, content: unknown, isError = false): ProjectedStep {
  return {
    ...{ kind: "result", id: textOf(id), name: undefined },
    ...{ content: JSON.stringify(content), isError },
  };
}

function callStep(id: unknown, name: unknown, args: unknown, isCustom = false): ProjectedStep {
  return { kind: "call", id: textOf(id), name: textOf(name) ?? "", args: argsOf(args), isCustom };
}

function responsesStep(item: Fields): ProjectedStep {
  const { type, call_id: id, name } = item;
  if (type === "function_call") return callStep(id, name, item["arguments"]);
  if (type === "custom_tool_call") return callStep(id, name, item["input"], true);
  if (type === "function_call_output" || type === "custom_tool_call_output") {
    return resultStep(id, item["output"]);
  }
  return said(item["role"], item);
}

function chatSteps(message: Fields): ProjectedStep[] {
  const { role, content, tool_call_id: id } = message;
  if (role === "tool") return [resultStep(id, content)];
  const calls = listOf(message["tool_calls"]).map((each): ProjectedStep => {
    const call = fieldsOf(each);
    const isCustom = call["type"] === "custom";
    const called = fieldsOf(call[isCustom ? "custom" : "function"]);
    return callStep(call["id"], called["name"], called[isCustom ? "input" : "arguments"], isCustom);
  });
  return [said(role, content ?? null), ...calls];
}

function blocksOf(content: unknown): Fields[] {
  return typeof content === "string"
    ? [{ type: "text", text: content }]
    : listOf(content).map(fieldsOf);
}

function anthropicStep(role: unknown, block: Fields): ProjectedStep {
  const { type, id, name, input } = block;
  if (type === "tool_use") return callStep(id, name, input);
  if (type !== "tool_result") return said(role, block);
  return resultStep(block["tool_use_id"], block["content"], block["is_error"] === true);
}

function geminiStep(role: unknown, part: Fields): ProjectedStep {
  const { functionCall, functionResponse } = part;
  if (functionCall !== undefined) {
    const { id, name, args } = fieldsOf(functionCall);
    return callStep(id, name, args);
  }
  if (functionResponse === undefined) return said(role, part);
  const { id, name, response } = fieldsOf(functionResponse);
  return {
    ...{ kind: "result", id: textOf(id), name: textOf(name) ?? "" },
    ...{ content: JSON.stringify(response), isError: "error" in fieldsOf(response) },
  };
}

/**
 * What is wrong with how calls and results stand together, one line each: every call has exactly one result with its
 * id, in the order of the calls and before anything but the rest of its turn; no id comes twice.
 */
export function pairingFaults(wire: ProviderWire, steps: readonly ProjectedStep[]): string[] {
  const faults: string[] = [];
  const ids = new Set<string>();
  let open: ProjectedCallStep[] = [];
  let isAnswering = false;
  for (const step of steps) {
    if (step.kind === "result") {
      isAnswering = true;
      const call = open.shift();
      if (call === undefined) faults.push("a result stands without its call");
      else faults.push(...answerFaults(wire, call, step));
      continue;
    }
    const isOfTurn = step.kind === "call" || step.by === "assistant";
    if (open.length > 0 && (isAnswering || !isOfTurn)) {
      faults.push(`${open.length} calls stand without a result`);
      open = [];
    }
    isAnswering = false;
    if (step.kind !== "call") continue;
    open.push(step);
    if (step.id === undefined) {
      if (wire !== ProviderWire.GEMINI) faults.push("a call has no id");
    } else if (ids.has(step.id)) faults.push(`the id ${step.id} comes twice`);
    else ids.add(step.id);
  }
  if (open.length > 0) faults.push(`${open.length} calls stand without a result at the end`);
  return faults;
}

function answerFaults(
  wire: ProviderWire,
  call: ProjectedCallStep,
  result: ProjectedResultStep,
): string[] {
  const faults: string[] = [];
  if (call.id !== result.id) faults.push(`the result of ${call.id} is that of ${result.id}`);
  if (wire === ProviderWire.GEMINI && call.name !== result.name) {
    faults.push(`the result of ${call.name} is that of ${result.name}`);
  }
  return faults;
}

/** What a strict reader finds wrong with a JSON text: faults of its form, and strings with a surrogate alone. */
export function strictFaults(json: string): string[] {
  if (!json.isWellFormed()) return ["the text has a lone surrogate"];
  try {
    return isStrict(JSON.parse(json)) ? [] : ["a string has a lone surrogate"];
  } catch (error) {
    if (error instanceof SyntaxError) return [`no JSON: ${error.message}`];
    throw error;
  }
}

function isStrict(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isStrict);
  return Object.entries(fieldsOf(value)).every(
    ([key, each]) => key.isWellFormed() && isStrict(each),
  );
}

/** What is wrong with the arguments of a call, which are a JSON object unless the tool takes any text. */
export function argumentFaults({ args, isCustom, name }: ProjectedCallStep): string[] {
  if (isCustom) return [];
  const faults = strictFaults(args);
  if (faults.length > 0) return faults.map((fault) => `arguments of ${name}: ${fault}`);
  const value: unknown = JSON.parse(args);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? [] : [`arguments of ${name} are no object`];
}

/** Whether the documentation of a wire lets a call have an id. `isOwn`: it goes back to where it came from. */
export function fitsWire(wire: ProviderWire, id: string, isOwn: boolean): boolean {
  const isPlain = id.isWellFormed() && !/\p{Cc}/u.test(id);
  if (id === "") return false;
  if (!isPlain) return isOwn && wire === ProviderWire.GEMINI;
  switch (wire) {
    case ProviderWire.OPENAI_RESPONSES:
      return id.length <= 64;
    case ProviderWire.OPENAI_CHAT_COMPLETIONS:
      return id.length <= (isOwn ? 64 : 40);
    case ProviderWire.ANTHROPIC_MESSAGES:
      return /^[a-zA-Z0-9_-]+$/.test(id);
    case ProviderWire.MISTRAL:
      return /^[a-zA-Z0-9]{9}$/.test(id);
    default:
      return isOwn || /^[a-zA-Z0-9_-]{1,64}$/.test(id);
  }
}
