ALTER TABLE pairings RENAME COLUMN record_id TO tool_call_id;
