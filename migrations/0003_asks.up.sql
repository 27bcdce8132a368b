-- What the inbox lists and watches. Tenant, owner and creator are those of the session, which never change.
-- Each index ends with the rowid, which is the position: the order of opening.
CREATE TABLE asks (
  position INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (session),
  ask_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  state INTEGER NOT NULL,
  create_time_ms INTEGER NOT NULL,
  expire_time_ms INTEGER,
  last_position INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  owner_subject TEXT NOT NULL,
  created_by_subject TEXT NOT NULL,
  UNIQUE (session, ask_id)
) STRICT;

-- With the state in front of the position, a list of open asks never passes a settled one.
CREATE INDEX asks_by_tenant ON asks (tenant, state);

CREATE INDEX asks_by_owner ON asks (tenant, owner_subject, state);

CREATE INDEX asks_by_creator ON asks (tenant, created_by_subject, state);

CREATE INDEX asks_by_tool ON asks (tenant, tool_name, state);

CREATE INDEX asks_by_session ON asks (session, state);

CREATE INDEX asks_by_change ON asks (tenant, last_position);

CREATE INDEX asks_by_change_and_owner ON asks (tenant, owner_subject, last_position);

CREATE INDEX asks_by_change_and_creator ON asks (tenant, created_by_subject, last_position);

CREATE INDEX asks_by_change_in_session ON asks (session, last_position);

-- A row is there only while its record waits.
CREATE TABLE deadlines (
  session INTEGER NOT NULL REFERENCES sessions (session),
  record_id TEXT NOT NULL,
  time_ms INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (session, record_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX deadlines_by_time ON deadlines (time_ms, position);
