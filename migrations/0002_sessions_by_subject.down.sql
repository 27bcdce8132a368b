DROP INDEX sessions_by_creator;
DROP INDEX sessions_by_owner;
