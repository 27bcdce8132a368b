import type { ImportReport, ImportSummary } from "../server/import-sessions.js";
import type { RefusedSession } from "../server/refused-session.js";
import { grouped } from "./progress-bar.js";

/** What became of an import, for people. */
export function importText(report: ImportReport): string {
  const { refused, unfinished, stopped, isDryRun } = report;
  return [
    headline(report),
    ...countRows(report).map(([name, count]) => `  ${name.padEnd(10)}  ${grouped(count)}`),
    ...(report.imported + report.unchanged > 0 ? summaryLines(report.summary) : []),
    ...(isDryRun ? ["Nothing was sent."] : []),
    ...(stopped === undefined ? [] : [stoppedText(stopped, unfinished, isDryRun)]),
    ...refused.map(refusedText),
  ].join("\n");
}

function headline({ isDryRun, imported, readable, sessions, durationMs }: ImportReport): string {
  const [verb, count] = isDryRun ? ["Read", readable] : ["Imported", imported];
  const seconds = (durationMs / 1000).toFixed(1);
  return `${verb} ${grouped(count)} of ${counted(sessions, "session")} in ${seconds} s`;
}

function countRows(report: ImportReport): [string, number][] {
  const { isDryRun, imported, unchanged, readable, refused, unfinished } = report;
  const done: [string, number][] = isDryRun
    ? [["readable", readable]]
    : [
        ["imported", imported],
        ["unchanged", unchanged],
      ];
  const left: [string, number][] = unfinished > 0 ? [["not done", unfinished]] : [];
  return [...done, ["refused", refused.length], ...left];
}

function summaryLines(summary: ImportSummary): string[] {
  const { toolCalls, joinedResults, openCalls, openAsks, pendingAuthorizations } = summary;
  const { attachedHooks, standaloneHooks, attachedEvidence, standaloneEvidence } = summary;
  return [
    `${counted(summary.messages, "message")} and ${counted(toolCalls, "tool call")}; ` +
      `${grouped(joinedResults)} of the calls were joined with their result, ` +
      `${grouped(openCalls)} can go on`,
    `${counted(openAsks, "ask")} can be answered, ` +
      `${counted(pendingAuthorizations, "authorization")} pending`,
    `${counted(attachedHooks + standaloneHooks, "hook record")}: ` +
      `${grouped(attachedHooks)} joined with a call, ${grouped(standaloneHooks)} standalone`,
    `${counted(attachedEvidence + standaloneEvidence, "other piece")} of evidence: ` +
      `${grouped(attachedEvidence)} joined with a call, ${grouped(standaloneEvidence)} standalone`,
    ...(summary.gaps > 0 ? [`${counted(summary.gaps, "place")} where events are missing`] : []),
  ];
}

function stoppedText(stopped: string, unfinished: number, isDryRun: boolean): string {
  const goOn = isDryRun ? "" : " The same command goes on from here.";
  return `Stopped with ${counted(unfinished, "session")} not done: ${stopped}.${goOn}`;
}

function refusedText({ file, reason, message, path, offsetBytes }: RefusedSession): string {
  const places = [path ?? [], offsetBytes === undefined ? [] : `byte ${offsetBytes}`].flat();
  const where = places.length === 0 ? "" : ` (at ${places.join(", ")})`;
  return printable(`${file}: ${reason}: ${message}${where}`);
}

/** Names and texts from outside do not steer the terminal, nor look like another line. */
function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

function counted(count: number, noun: string): string {
  return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
}
