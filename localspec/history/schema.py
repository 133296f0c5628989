"""The tables of the history, and the steps by which each version became the next one."""

_FIRST = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: a directory is named after it
    title TEXT NOT NULL DEFAULT '', system TEXT, pair TEXT NOT NULL DEFAULT '', settings TEXT NOT NULL DEFAULT '',
    created_s REAL NOT NULL, updated_s REAL NOT NULL, leaf INTEGER REFERENCES message(id)
) STRICT;

CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation(id), parent INTEGER REFERENCES message(id),
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')), content TEXT NOT NULL, thinking TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN ('streaming', 'complete', 'cut')),
    created_s REAL NOT NULL, model TEXT NOT NULL DEFAULT '', figures TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX message_by_conversation ON message(conversation, parent);

CREATE INDEX message_by_parent ON message(parent);

CREATE INDEX conversation_by_time ON conversation(updated_s);

CREATE VIRTUAL TABLE found USING fts5(
    content, content='message', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
);

CREATE TRIGGER message_inserted AFTER INSERT ON message WHEN new.state != 'streaming' BEGIN
    INSERT INTO found(rowid, content) VALUES (new.id, new.content);
END;

CREATE TRIGGER message_deleted AFTER DELETE ON message WHEN old.state != 'streaming' BEGIN
    INSERT INTO found(found, rowid, content) VALUES ('delete', old.id, old.content);
END;

-- One trigger for both: SQLite promises no order among several, and the old text has to leave first.
CREATE TRIGGER message_updated AFTER UPDATE OF content, state ON message BEGIN
    INSERT INTO found(found, rowid, content) SELECT 'delete', old.id, old.content WHERE old.state != 'streaming';
    INSERT INTO found(rowid, content) SELECT new.id, new.content WHERE new.state != 'streaming';
END;
"""
# What an assistant calls, or that a message is the result of a call, as JSON; see `records.acts_of`. A result has the
# role `user`, since the check of the first step knows no other, and SQLite changes no check.
_SECOND = "ALTER TABLE message ADD COLUMN acts TEXT NOT NULL DEFAULT '';"
# What the user calls a conversation, to find it again.
_THIRD = """
CREATE TABLE tag (
    conversation INTEGER NOT NULL REFERENCES conversation(id), name TEXT NOT NULL, PRIMARY KEY (conversation, name)
) STRICT, WITHOUT ROWID;
"""
# What the user thinks of a reply: `good`, `bad`, or nothing.
_FOURTH = "ALTER TABLE message ADD COLUMN mark TEXT NOT NULL DEFAULT '';"
# Replies that are being written, so that nothing looks through all messages for them; what was kept beside the file and is
# in it; messages in scripts without spaces, letter by letter; how far work in the background has come. A step costs the
# same however much there is: the replies of a dead program are among the last messages.
_FIFTH = """
CREATE TABLE growing (message INTEGER PRIMARY KEY) STRICT;

INSERT INTO growing SELECT id FROM (SELECT id, state FROM message ORDER BY id DESC LIMIT 2000) WHERE state = 'streaming';

CREATE TRIGGER growing_inserted AFTER INSERT ON message WHEN new.state = 'streaming' BEGIN
    INSERT OR IGNORE INTO growing VALUES (new.id);
END;

CREATE TRIGGER growing_updated AFTER UPDATE OF state ON message WHEN new.state != old.state BEGIN
    DELETE FROM growing WHERE message = new.id;
    INSERT INTO growing SELECT new.id WHERE new.state = 'streaming';
END;

CREATE TRIGGER growing_deleted AFTER DELETE ON message WHEN old.state = 'streaming' BEGIN
    DELETE FROM growing WHERE message = old.id;
END;

CREATE TABLE taken (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

CREATE VIRTUAL TABLE letters USING fts5(content, columnsize=0, tokenize='unicode61 remove_diacritics 2');

CREATE TRIGGER letters_deleted AFTER DELETE ON message BEGIN
    DELETE FROM letters WHERE rowid = old.id;
END;

CREATE TABLE chore (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT, WITHOUT ROWID;

INSERT INTO chore SELECT 'letters', max(id) + 1 FROM message HAVING max(id) IS NOT NULL;
"""
STEPS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)
