CREATE TABLE delivery_conversations (
    group_id      BLOB    NOT NULL PRIMARY KEY CHECK (length(group_id) = 16),
    -- 1 group, 2 DM
    kind          INTEGER NOT NULL CHECK (kind IN (1, 2)),
    peer          BLOB    CHECK (peer IS NULL OR length(peer) = 32),
    -- 1 active, 2 inactive, 3 restored
    state         INTEGER NOT NULL CHECK (state IN (1, 2, 3)),
    -- 0 unknown, 1 allowed, 2 denied
    consent       INTEGER NOT NULL CHECK (consent IN (0, 1, 2)),
    name          TEXT,
    created_ns    INTEGER NOT NULL,
    adder         BLOB    CHECK (adder IS NULL OR length(adder) = 32),
    -- The Welcome that brought the conversation here.
    discovered_by INTEGER CHECK (discovered_by IS NULL OR discovered_by > 0),
    CHECK ((kind = 2) = (peer IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX delivery_conversations_peer ON delivery_conversations (peer) WHERE peer IS NOT NULL;
CREATE INDEX delivery_conversations_discovered ON delivery_conversations (discovered_by)
    WHERE discovered_by IS NOT NULL;

-- Grows whenever a conversation comes or another part is taken in one. Whoever keeps a list of them asks for this
-- number after each commit, and lists again only when it has changed.
CREATE TABLE delivery_conversations_revision (
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL CHECK (revision >= 0)
) STRICT;

INSERT INTO delivery_conversations_revision (id, revision) VALUES (1, 0);

CREATE TRIGGER delivery_conversation_comes AFTER INSERT ON delivery_conversations
BEGIN
    UPDATE delivery_conversations_revision SET revision = revision + 1;
END;

CREATE TRIGGER delivery_conversation_changes AFTER UPDATE OF state ON delivery_conversations
    WHEN NEW.state <> OLD.state
BEGIN
    UPDATE delivery_conversations_revision SET revision = revision + 1;
END;

-- The last delivery number given out, 0 before the first. Never falls, so no number returns.
CREATE TABLE delivery_counter (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL CHECK (last >= 0)
) STRICT;

INSERT INTO delivery_counter (id, last) VALUES (1, 0);

CREATE TRIGGER delivery_counter_never_falls BEFORE UPDATE ON delivery_counter
    WHEN NEW.last < OLD.last
BEGIN
    SELECT RAISE(ABORT, 'a delivery number is never given twice');
END;

CREATE TRIGGER delivery_counter_stays BEFORE DELETE ON delivery_counter
BEGIN
    SELECT RAISE(ABORT, 'a delivery number is never given twice');
END;

-- A message has a delivery number exactly while it is Published. The content comes last, so that
-- reading the other columns leaves its pages alone.
CREATE TABLE delivery_messages (
    row                 INTEGER NOT NULL PRIMARY KEY,
    id                  BLOB    NOT NULL CHECK (length(id) = 32),
    group_id            BLOB    NOT NULL REFERENCES delivery_conversations (group_id)
                                DEFERRABLE INITIALLY DEFERRED,
    -- 1 application, 2 membership change
    kind                INTEGER NOT NULL CHECK (kind IN (1, 2)),
    -- 1 unpublished, 2 published, 3 failed
    status              INTEGER NOT NULL CHECK (status IN (1, 2, 3)),
    delivery_number     INTEGER CHECK (delivery_number IS NULL OR delivery_number > 0),
    deleted             INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1)),
    expires_ns          INTEGER,
    sender_inbox        BLOB    NOT NULL CHECK (length(sender_inbox) = 32),
    sender_installation BLOB    CHECK (sender_installation IS NULL
                                       OR length(sender_installation) = 32),
    sent_ns             INTEGER NOT NULL,
    sequence_id         INTEGER CHECK (sequence_id IS NULL OR sequence_id > 0),
    idempotency_key     TEXT    NOT NULL,
    failure             TEXT,
    content             BLOB    NOT NULL,
    CHECK ((status = 2) = (delivery_number IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX delivery_messages_number ON delivery_messages (delivery_number)
    WHERE delivery_number IS NOT NULL;
CREATE INDEX delivery_messages_of_group ON delivery_messages (group_id, delivery_number);
CREATE INDEX delivery_messages_expiring ON delivery_messages (expires_ns)
    WHERE expires_ns IS NOT NULL AND deleted = 0;

CREATE TRIGGER delivery_number_is_final BEFORE UPDATE OF delivery_number ON delivery_messages
    WHEN OLD.delivery_number IS NOT NULL AND NEW.delivery_number IS NOT OLD.delivery_number
BEGIN
    SELECT RAISE(ABORT, 'a message keeps its delivery number');
END;

-- The row outlives its content: it is what keeps the id and the number from coming back.
CREATE TRIGGER delivery_number_outlives_content BEFORE DELETE ON delivery_messages
    WHEN OLD.delivery_number IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a message keeps its delivery number');
END;

-- Where the message with an id is. Ids are hashes, so new ones belong anywhere, and an index of all of them would
-- have about as many pages rewritten as it takes in messages, the longer the history the more. New ones are therefore
-- gathered in a small table, and now and then move to the large one in order, many to a page. The first eight
-- bytes are enough to find it by; that the rest is equal shows in the row.
CREATE TABLE delivery_ids_recent (
    prefix  BLOB    NOT NULL CHECK (length(prefix) = 8),
    message INTEGER NOT NULL,
    PRIMARY KEY (prefix, message)
) STRICT, WITHOUT ROWID;

CREATE TABLE delivery_ids (
    prefix  BLOB    NOT NULL CHECK (length(prefix) = 8),
    message INTEGER NOT NULL,
    PRIMARY KEY (prefix, message)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER delivery_ids_enter AFTER INSERT ON delivery_messages
BEGIN
    INSERT INTO delivery_ids_recent (prefix, message) VALUES (substr(NEW.id, 1, 8), NEW.row);
END;

CREATE TRIGGER delivery_ids_move AFTER INSERT ON delivery_messages WHEN NEW.row % 8192 = 0
BEGIN
    INSERT INTO delivery_ids (prefix, message)
        SELECT prefix, message FROM delivery_ids_recent ORDER BY prefix, message;
    DELETE FROM delivery_ids_recent;
END;

-- D by group. A group without a row has D = 0.
CREATE TABLE delivery_positions (
    group_id  BLOB    NOT NULL PRIMARY KEY CHECK (length(group_id) = 16),
    delivered INTEGER NOT NULL CHECK (delivered > 0)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER delivery_position_never_falls BEFORE UPDATE OF delivered ON delivery_positions
    WHEN NEW.delivered < OLD.delivered
BEGIN
    SELECT RAISE(ABORT, 'the delivered position of a group never falls');
END;

CREATE TRIGGER delivery_position_stays BEFORE DELETE ON delivery_positions
BEGIN
    SELECT RAISE(ABORT, 'the delivered position of a group never falls');
END;

-- Who is the default consumer. `slot` names the lock file that the owner holds while it lives.
CREATE TABLE delivery_consumer (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    token       BLOB    NOT NULL CHECK (length(token) = 16),
    slot        INTEGER NOT NULL CHECK (slot >= 0),
    process     INTEGER NOT NULL,
    acquired_ns INTEGER NOT NULL,
    expires_ns  INTEGER NOT NULL
) STRICT;
