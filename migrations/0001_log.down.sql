-- loses data
DROP TABLE snapshots;
DROP TABLE creations;
DROP TABLE requests;
DROP TABLE pairings;
DROP TABLE bodies;
DROP TABLE records;
DROP TABLE events;
DROP TABLE sessions;
DROP TABLE meta;
PRAGMA application_id = 0;
