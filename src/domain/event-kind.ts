/** Kinds of event that this version writes. Readers keep kinds that they do not know. */
export const EventKind = {
  sessionCreated: "SESSION_CREATED",
  sessionEnded: "SESSION_ENDED",
  runBegun: "RUN_BEGUN",
  runEnded: "RUN_ENDED",
  turnAccepted: "TURN_ACCEPTED",
  messageRecorded: "MESSAGE_RECORDED",
  toolCallAccepted: "TOOL_CALL_ACCEPTED",
  toolCallAmended: "TOOL_CALL_AMENDED",
  startGateLifted: "START_GATE_LIFTED",
  toolCallStarted: "TOOL_CALL_STARTED",
  resultRecorded: "RESULT_RECORDED",
  lateResultRecorded: "LATE_RESULT_RECORDED",
  toolCallEnded: "TOOL_CALL_ENDED",
  toolCallReconciled: "TOOL_CALL_RECONCILED",
  provisional: "PROVISIONAL",
  hookPublished: "HOOK_PUBLISHED",
} as const;
export type EventKind = (typeof EventKind)[keyof typeof EventKind];
