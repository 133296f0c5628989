"""The database's tables, and how an older one becomes today's. `user_version` counts the steps.

Times are in whole microseconds: half of the bytes of a float. `round` is what happened, and goes when the file gets
too big; `cell` and `tally` are its sums, which reports are made of. What is text, or spells it, is in `said`, `prompt`
and `piece` alone.
"""

import sqlite3

_FIRST = (
    """
    CREATE TABLE pair (
        id INTEGER PRIMARY KEY,
        target TEXT NOT NULL,
        draft_model TEXT NOT NULL DEFAULT '',
        plain_us INTEGER,  -- a pass of width 1 as it was calibrated last
        UNIQUE (target, draft_model)
    ) STRICT
    """,
    """
    CREATE TABLE reply (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        started_s REAL NOT NULL,
        pair INTEGER NOT NULL REFERENCES pair(id),
        workload TEXT NOT NULL,
        tagged_by TEXT NOT NULL CHECK (tagged_by IN ('guess', 'user')),
        greedy INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        tokens INTEGER NOT NULL DEFAULT 0,
        settled INTEGER NOT NULL DEFAULT 0,  -- rounds up to this one are in the sums
        rounds INTEGER NOT NULL DEFAULT 0,
        drafted INTEGER NOT NULL DEFAULT 0,
        accepted INTEGER NOT NULL DEFAULT 0,
        prefill_us INTEGER NOT NULL DEFAULT 0,
        decode_us INTEGER NOT NULL DEFAULT 0,
        wall_us INTEGER NOT NULL DEFAULT 0,
        ended INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
    "CREATE INDEX reply_by_time ON reply(started_s)",
    """
    CREATE TABLE round (
        reply INTEGER NOT NULL,
        n INTEGER NOT NULL,
        drafter TEXT NOT NULL,
        drafted INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        confirmed INTEGER NOT NULL,
        correction_rank INTEGER,  -- 1 is the draft's own token; NULL: not near, or nothing corrected
        width INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        draft_prefill_us INTEGER NOT NULL,
        draft_us INTEGER NOT NULL,
        verify_us INTEGER NOT NULL,
        sample_us INTEGER NOT NULL,
        truncate_us INTEGER NOT NULL,
        other_us INTEGER NOT NULL,
        confidences BLOB NOT NULL,  -- a byte for each drafted token, 255 is certain
        gaps BLOB NOT NULL,  -- likewise, in sixteenths
        PRIMARY KEY (reply, n)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE cell (
        hour INTEGER NOT NULL,  -- since 1970, of the reply's beginning
        pair INTEGER NOT NULL,
        workload TEXT NOT NULL,
        greedy INTEGER NOT NULL,
        drafter TEXT NOT NULL,
        depth INTEGER NOT NULL,  -- from where on: 0, 256, 512, 1024, ...
        rounds INTEGER NOT NULL,
        drafted INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        confirmed INTEGER NOT NULL,
        draft_prefill_us INTEGER NOT NULL,
        draft_us INTEGER NOT NULL,
        verify_us INTEGER NOT NULL,
        sample_us INTEGER NOT NULL,
        truncate_us INTEGER NOT NULL,
        other_us INTEGER NOT NULL,
        PRIMARY KEY (hour, pair, workload, greedy, drafter, depth)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE tally (
        hour INTEGER NOT NULL,
        pair INTEGER NOT NULL,
        workload TEXT NOT NULL,
        greedy INTEGER NOT NULL,
        drafter TEXT NOT NULL,
        kind TEXT NOT NULL,  -- position, confidence, gap, or rank, of which only `tried` counts
        bucket INTEGER NOT NULL,
        tried INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        PRIMARY KEY (hour, pair, workload, greedy, drafter, kind, bucket)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE drift (
        pair INTEGER NOT NULL,
        workload TEXT NOT NULL,
        drafter TEXT NOT NULL,
        state TEXT NOT NULL,
        PRIMARY KEY (pair, workload, drafter)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE change (
        found_s REAL NOT NULL,
        since_s REAL NOT NULL,
        pair INTEGER NOT NULL,
        workload TEXT NOT NULL,
        drafter TEXT NOT NULL,
        rounds INTEGER NOT NULL,
        before REAL NOT NULL,
        after REAL NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE said (
        reply INTEGER NOT NULL,
        n INTEGER NOT NULL,
        draft BLOB NOT NULL,
        confirmed BLOB NOT NULL,
        next_token INTEGER NOT NULL,
        PRIMARY KEY (reply, n)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE prompt (reply INTEGER PRIMARY KEY, tokens BLOB NOT NULL) STRICT",
    """
    CREATE TABLE piece (
        pair INTEGER NOT NULL,
        token INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (pair, token)
    ) STRICT, WITHOUT ROWID
    """,
)

_SECOND = (
    # A reply has a number of its own before the database gives it one: what is written twice, is there once.
    "ALTER TABLE reply ADD COLUMN key INTEGER",
    "CREATE UNIQUE INDEX reply_by_key ON reply(key)",
    # Texts that are made at once share their passes: no figure of theirs is one of a text alone.
    """
    CREATE TABLE pair_of_several (
        id INTEGER PRIMARY KEY,
        target TEXT NOT NULL,
        draft_model TEXT NOT NULL DEFAULT '',
        plain_us INTEGER,  -- a pass of width 1 as it was calibrated last
        at_once INTEGER NOT NULL DEFAULT 1,
        UNIQUE (target, draft_model, at_once)
    ) STRICT
    """,
    """
    INSERT INTO pair_of_several(id, target, draft_model, plain_us)
    SELECT id, target, draft_model, plain_us FROM pair
    """,
    "DROP TABLE pair",
    "ALTER TABLE pair_of_several RENAME TO pair",
)

# Step n takes a database from user_version n to n + 1.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND)
VERSION = len(MIGRATIONS)
TEXT_TABLES = ("said", "prompt", "piece")
TABLES = ("round", "reply", "cell", "tally", "drift", "change", *TEXT_TABLES, "pair")


class TooNewError(Exception):
    """The database was written by a later localspec."""

    def __init__(self) -> None:
        super().__init__("it was written by a later localspec")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database up to `VERSION`, all steps or none.

    Raises:
        TooNewError: it is beyond it.
    """
    if _version(connection) > VERSION:
        raise TooNewError
    if _version(connection) == VERSION:
        return
    # Another process may be at it, too: look again once nobody else can write.
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[_version(connection) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(_version(connection), VERSION)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
