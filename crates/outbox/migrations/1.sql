CREATE TABLE outbox_intents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id BLOB NOT NULL,
    message_id BLOB UNIQUE,
    change BLOB,
    state INTEGER NOT NULL,
    sequence_id INTEGER,
    code TEXT,
    detail TEXT,
    created_ns INTEGER NOT NULL,
    CHECK ((message_id IS NULL) <> (change IS NULL))
) STRICT;
CREATE INDEX outbox_intents_open ON outbox_intents (group_id, id) WHERE state < 3;
CREATE TABLE outbox_attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    intent_id INTEGER NOT NULL REFERENCES outbox_intents (id),
    group_id BLOB NOT NULL,
    payload_identity BLOB NOT NULL UNIQUE,
    envelope BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    current INTEGER NOT NULL,
    replied_sequence_id INTEGER,
    replied_hash BLOB,
    welcome BLOB,
    recipients BLOB
) STRICT;
CREATE UNIQUE INDEX outbox_attempts_current ON outbox_attempts (intent_id) WHERE current = 1;
CREATE TABLE outbox_welcomes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    intent_id INTEGER NOT NULL REFERENCES outbox_intents (id),
    envelope BLOB NOT NULL,
    state INTEGER NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX outbox_welcomes_owed ON outbox_welcomes (id) WHERE state = 0;
CREATE INDEX outbox_attempts_open ON outbox_attempts (group_id) WHERE current = 1;
