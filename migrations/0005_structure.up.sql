-- rebuilds
-- Where a session stands below others: filled from the log, in the same transaction.
ALTER TABLE sessions ADD COLUMN parent_session_id TEXT;

ALTER TABLE sessions ADD COLUMN root_session_id TEXT NOT NULL DEFAULT '';

CREATE INDEX sessions_by_parent ON sessions (tenant, parent_session_id)
WHERE parent_session_id IS NOT NULL;

CREATE INDEX sessions_by_root ON sessions (tenant, root_session_id, create_position);

ALTER TABLE asks ADD COLUMN root_session_id TEXT NOT NULL DEFAULT '';

CREATE INDEX asks_by_root ON asks (tenant, root_session_id, state);

CREATE INDEX asks_by_change_below_root ON asks (tenant, root_session_id, last_position);
