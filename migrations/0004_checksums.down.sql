ALTER TABLE asks DROP COLUMN last_chain;

DROP INDEX deadlines_by_set_time;

ALTER TABLE deadlines DROP COLUMN set_time_ms;

ALTER TABLE records DROP COLUMN last_chain;

ALTER TABLE creations DROP COLUMN checksum;

ALTER TABLE requests DROP COLUMN checksum;

ALTER TABLE sessions DROP COLUMN checksum;

ALTER TABLE meta DROP COLUMN checksum;
