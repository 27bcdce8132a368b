-- "tmrk": tells a Toolmark file from another program's.
PRAGMA application_id = 1953329771;

CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  generation INTEGER NOT NULL CHECK (generation >= 0),
  store_id TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
  session INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  session_id TEXT NOT NULL,
  owner_subject TEXT NOT NULL,
  created_by_subject TEXT NOT NULL,
  state INTEGER NOT NULL,
  create_position INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  position INTEGER NOT NULL,
  high_water INTEGER NOT NULL,
  chain BLOB NOT NULL,
  session_sequence INTEGER NOT NULL,
  active_run_id TEXT,
  update_time_ms INTEGER NOT NULL,
  UNIQUE (tenant, session_id)
) STRICT;

CREATE INDEX sessions_by_creation ON sessions (tenant, create_position);

-- The payload comes last, so that reading the other columns does not touch its overflow pages.
CREATE TABLE events (
  position INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (session),
  sequence INTEGER NOT NULL CHECK (sequence > 0),
  revision INTEGER CHECK (revision > 0),
  kind TEXT NOT NULL,
  time_ms INTEGER NOT NULL,
  commitment BLOB NOT NULL,
  private_commitment BLOB,
  chain BLOB NOT NULL,
  salt BLOB,
  payload BLOB,
  CHECK ((salt IS NULL) = (payload IS NULL))
) STRICT;

CREATE UNIQUE INDEX events_by_sequence ON events (session, sequence);

CREATE UNIQUE INDEX events_by_revision ON events (session, revision) WHERE revision IS NOT NULL;

-- The unique indices alone would let REPLACE remove the row in the way.
CREATE TRIGGER events_only_append BEFORE INSERT ON events
BEGIN
  SELECT RAISE(ABORT, 'events: the position is not higher than every earlier one')
  WHERE NEW.position <= (SELECT coalesce(max(position), 0) FROM events);
  SELECT RAISE(ABORT, 'events: the sequence is not higher than every earlier one of the session')
  WHERE NEW.sequence <= (SELECT max(sequence) FROM events WHERE session = NEW.session);
  SELECT RAISE(ABORT, 'events: the revision is not higher than every earlier one of the session')
  WHERE NEW.revision <= (
    SELECT max(revision) FROM events WHERE session = NEW.session AND revision IS NOT NULL
  );
END;

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
WHEN NOT (
  NEW.payload IS NULL
  AND NEW.salt IS NULL
  AND NEW.position IS OLD.position
  AND NEW.session IS OLD.session
  AND NEW.sequence IS OLD.sequence
  AND NEW.revision IS OLD.revision
  AND NEW.kind IS OLD.kind
  AND NEW.time_ms IS OLD.time_ms
  AND NEW.commitment IS OLD.commitment
  AND NEW.private_commitment IS OLD.private_commitment
  AND NEW.chain IS OLD.chain
)
BEGIN
  SELECT RAISE(ABORT, 'events: only payload and salt together may be erased');
END;

CREATE TRIGGER events_never_go BEFORE DELETE ON events
BEGIN
  SELECT RAISE(ABORT, 'events: a row is never deleted');
END;

CREATE TABLE records (
  session INTEGER NOT NULL REFERENCES sessions (session),
  family INTEGER NOT NULL,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  record_id TEXT NOT NULL,
  tool_call_id TEXT,
  PRIMARY KEY (session, family, first_sequence)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX records_by_id ON records (record_id, session);

CREATE INDEX records_by_call ON records (tool_call_id, session, family, first_sequence)
WHERE tool_call_id IS NOT NULL;

CREATE TABLE bodies (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (session),
  body_ref TEXT NOT NULL,
  sha256 BLOB NOT NULL,
  size_bytes INTEGER NOT NULL,
  is_json_object INTEGER NOT NULL CHECK (is_json_object IN (0, 1)),
  data BLOB NOT NULL,
  UNIQUE (session, body_ref)
) STRICT;

CREATE TABLE pairings (
  session INTEGER NOT NULL REFERENCES sessions (session),
  tool_call_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  salt BLOB,
  pairing BLOB,
  PRIMARY KEY (session, tool_call_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
  session INTEGER NOT NULL REFERENCES sessions (session),
  request_id TEXT NOT NULL,
  digest BLOB NOT NULL,
  outcome BLOB NOT NULL,
  PRIMARY KEY (session, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE creations (
  tenant TEXT NOT NULL,
  subject TEXT NOT NULL,
  request_id TEXT NOT NULL,
  digest BLOB NOT NULL,
  session_id TEXT NOT NULL,
  PRIMARY KEY (tenant, subject, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (session),
  sequence INTEGER NOT NULL,
  high_water INTEGER NOT NULL,
  chain BLOB NOT NULL,
  digest BLOB NOT NULL,
  state BLOB NOT NULL,
  UNIQUE (session, sequence)
) STRICT;
