CREATE TABLE join_welcomes (
    sequence_id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    deadline_ns INTEGER,
    next_retry_ns INTEGER NOT NULL,
    tries INTEGER NOT NULL
) STRICT;
CREATE TABLE join_outcomes (
    sequence_id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    group_id BLOB
) STRICT;
