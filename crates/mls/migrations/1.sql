-- Every value OpenMLS keeps, one row each, with our own few beside them. x'' stands for "of no group".
CREATE TABLE mls_values (
    group_id BLOB NOT NULL,
    label TEXT NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (group_id, label, key)
);

-- What is asked often and without decoding a group.
CREATE TABLE mls_groups (
    group_id BLOB PRIMARY KEY CHECK (length(group_id) = 16),
    join_epoch INTEGER NOT NULL CHECK (join_epoch >= 0),
    epoch INTEGER NOT NULL CHECK (epoch >= join_epoch),
    active INTEGER NOT NULL CHECK (active IN (0, 1))
);

CREATE TABLE mls_installation (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    inbox_id BLOB CHECK (length(inbox_id) = 32),
    registration BLOB,
    registered INTEGER NOT NULL DEFAULT 0 CHECK (registered IN (0, 1)),
    CHECK (registered = 0 OR registration IS NOT NULL),
    CHECK ((registration IS NULL) = (inbox_id IS NULL))
);

CREATE TABLE mls_key_packages (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 32),
    wrapper_public BLOB NOT NULL UNIQUE CHECK (length(wrapper_public) = 32),
    wrapper_private BLOB NOT NULL,
    not_after_ns INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    published_ns INTEGER,
    used_ns INTEGER,
    superseded_ns INTEGER
);
