DROP INDEX asks_by_change_below_root;

DROP INDEX asks_by_root;

ALTER TABLE asks DROP COLUMN root_session_id;

DROP INDEX sessions_by_root;

DROP INDEX sessions_by_parent;

ALTER TABLE sessions DROP COLUMN root_session_id;

ALTER TABLE sessions DROP COLUMN parent_session_id;
