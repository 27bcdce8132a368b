-- Turns have private data as well as calls.
ALTER TABLE pairings RENAME COLUMN tool_call_id TO record_id;
