-- loses data
DROP TABLE deadlines;
DROP TABLE asks;
