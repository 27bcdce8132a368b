DROP TABLE deadlines;
DROP TABLE asks;
