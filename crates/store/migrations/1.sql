-- The version of each owner's tables.
CREATE TABLE store_schema (
    owner   TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0)
) STRICT, WITHOUT ROWID;

-- One row: which database this is.
CREATE TABLE store_meta (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    database_id BLOB    NOT NULL CHECK (length(database_id) = 16)
) STRICT;

CREATE TRIGGER store_identity_stays BEFORE UPDATE ON store_meta
BEGIN
    SELECT RAISE(ABORT, 'the identity of a database never changes');
END;

CREATE TRIGGER store_identity_is_not_lost BEFORE DELETE ON store_meta
BEGIN
    SELECT RAISE(ABORT, 'the identity of a database never changes');
END;
