-- rebuilds
-- What is added here is filled from the log, in the same transaction.
ALTER TABLE meta ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';

ALTER TABLE sessions ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';

ALTER TABLE requests ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';

ALTER TABLE creations ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';

ALTER TABLE records ADD COLUMN last_chain BLOB NOT NULL DEFAULT x'';

-- When each deadline was set: tells those that were set before a clock went back.
ALTER TABLE deadlines ADD COLUMN set_time_ms INTEGER NOT NULL DEFAULT 0;

CREATE INDEX deadlines_by_set_time ON deadlines (set_time_ms);

ALTER TABLE asks ADD COLUMN last_chain BLOB NOT NULL DEFAULT x'';
