"""The history's database, damaged or made by somebody else."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress

from lab.fuzz.scratch import scratch
from lab.fuzz.target import check_message
from localspec.errors import LocalspecError
from localspec.history.archive import History
from localspec.history.export import as_json, as_markdown
from localspec.history.schema import MIGRATIONS
from localspec.messages import Message

# Either bytes of a file, or SQL that makes one: mutated bytes rarely get past the first page.
_SQL = b"-- sql\n"
_FILLED = """
INSERT INTO conversation VALUES (1, 't', 's', 'p', '{}', 1.0, 2.0, NULL);
INSERT INTO message VALUES (1, 1, NULL, 'user', 'hello', '', 'complete', 1.0, '', '');
INSERT INTO message VALUES (2, 1, 1, 'assistant', 'yes', 'hm', 'streaming', 2.0, 'm', '{"a": 1}');
UPDATE conversation SET leaf = 2;
"""
SEEDS = tuple(
    _SQL + each.encode()
    for each in (
        _FILLED,
        _FILLED + "UPDATE message SET parent = 2 WHERE id = 1;\n",
        _FILLED + "UPDATE message SET created_s = 1e300, figures = '[[[';\n",
        _FILLED + "PRAGMA user_version = 9;\n",
        _FILLED
        + "ALTER TABLE message ADD COLUMN acts TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 2;"
        + """UPDATE message SET acts = '{"calls": [{"id": 1, "name": "f", "arguments": "{"}]}' WHERE id = 2;\n""",
        _FILLED + "DROP TABLE found; DROP TABLE message;\n",
        _FILLED + "DELETE FROM message WHERE id = 1;\n",
        "PRAGMA user_version = 0; DROP TABLE conversation;\n",
    )
)


_DANGEROUS = re.compile(rb"(?i)attach|vacuum|load_extension|recursive|zeroblob|randomblob|printf")


def run(data: bytes) -> None:
    folder = scratch() / "history"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = folder / "history.db"
    if data.startswith(_SQL):
        if _DANGEROUS.search(data):  # SQLite's own, not ours to survive
            return
        with closing(sqlite3.connect(file)) as connection, suppress(sqlite3.Error, ValueError):
            connection.set_progress_handler(lambda: 1, 100_000)
            connection.executescript(
                MIGRATIONS[0] + "PRAGMA user_version = 1; PRAGMA foreign_keys = OFF;"
            )
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in data.decode(errors="replace").split(";"):
                with suppress(sqlite3.Error, ValueError):
                    connection.execute(statement)
            connection.commit()
    else:
        file.write_bytes(data)
    _use(History(folder))


def _use(history: History) -> None:
    steps: tuple[Callable[[], object], ...] = (
        history.conversations,
        lambda: history.conversations("hel"),
        lambda: history.branch(1),
        lambda: history.messages(1),
        lambda: history.show(1, 2),
        lambda: as_markdown(history.conversation(1), history.branch(1)),
        lambda: as_json(history.conversation(1), history.messages(1)),
        lambda: history.add_user(1, 2, Message.user("more")),
        lambda: history.add_user(history.create(), None, Message.user("new")),
        lambda: history.resume_reply(2),
        lambda: history.delete(1),
    )
    try:
        for step in steps:
            try:
                step()
            except LocalspecError as error:
                check_message(str(error))
        if history.trouble is not None:
            check_message(history.trouble)
    finally:
        history.close()
