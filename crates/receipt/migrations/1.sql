-- F by topic, with what the topic holds pending. A topic without a row has F = 0.
CREATE TABLE receipt_topics (
    topic         BLOB    NOT NULL PRIMARY KEY,
    kind          INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),
    received      INTEGER NOT NULL CHECK (received >= 0),
    pending_rows  INTEGER NOT NULL DEFAULT 0 CHECK (pending_rows >= 0),
    pending_bytes INTEGER NOT NULL DEFAULT 0 CHECK (pending_bytes >= 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX receipt_topics_holding ON receipt_topics (kind, pending_rows, pending_bytes)
    WHERE pending_rows > 0;

CREATE TRIGGER receipt_received_never_falls BEFORE UPDATE OF received ON receipt_topics
    WHEN NEW.received < OLD.received
BEGIN
    SELECT RAISE(ABORT, 'the received position of a topic never falls');
END;

CREATE TRIGGER receipt_topic_stays BEFORE DELETE ON receipt_topics
BEGIN
    SELECT RAISE(ABORT, 'the received position of a topic never falls');
END;

-- Admitted envelopes that are neither applied nor terminally rejected. The payload comes last, so
-- that reading the other columns leaves its pages alone.
CREATE TABLE receipt_pending (
    topic                 BLOB    NOT NULL REFERENCES receipt_topics (topic),
    sequence_id           INTEGER NOT NULL CHECK (sequence_id > 0),
    kind                  INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),
    server_ns             INTEGER NOT NULL CHECK (server_ns >= 0),
    expiry_ns             INTEGER NOT NULL,
    hash                  BLOB    NOT NULL CHECK (length(hash) = 32),
    is_commit_or_proposal INTEGER NOT NULL CHECK (is_commit_or_proposal IN (0, 1)),
    stored_bytes          INTEGER NOT NULL CHECK (stored_bytes > 0),
    payload               BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX receipt_pending_order ON receipt_pending (topic, sequence_id);
