"""The telemetry's database, damaged or made by somebody else."""

import shutil
import sqlite3
from contextlib import closing, suppress

from lab.fuzz.scratch import scratch
from localspec.telemetry.database import FILE, Database
from localspec.telemetry.document import as_json
from localspec.telemetry.page import html_page
from localspec.telemetry.pair import Pair
from localspec.telemetry.prior import read_prior
from localspec.telemetry.reading import list_replies, reading
from localspec.telemetry.report import read_report
from localspec.telemetry.told import lines, told_replies

_SQL = b"-- sql\n"
_FILLED = b"""
INSERT INTO pair VALUES (1, 't', 'd', 20000, 1);
INSERT INTO reply(started_s, pair, workload, tagged_by, greedy, prompt_tokens) VALUES (3600.0, 1, 'chat', 'guess', 0, 5);
INSERT INTO cell VALUES (1, 1, 'code', 0, 'off', 0, 5, 0, 0, 5, 0, 0, 100000, 9, 8, 7);
INSERT INTO cell VALUES (9, 1, 'code', 0, 'model', 256, 5, 9, 4, 9, 1, 2000, 100000, 9, 8, 7);
INSERT INTO tally VALUES (1, 1, 'code', 0, 'model', 'position', 1, 5, 3);
INSERT INTO tally VALUES (1, 1, 'code', 0, 'model', 'rank', 2, 5, 0);
INSERT INTO tally VALUES (1, 1, 'code', 0, 'model', 'confidence', 9, 5, 5);
INSERT INTO change VALUES (1.0, 2.0, 1, 'code', 'model', 5, 0.5, 0.25);
"""
SEEDS = tuple(
    _SQL + _FILLED + each
    for each in (
        b"",
        b"UPDATE reply SET started_s = 1e300, wall_us = -5;",
        b"UPDATE cell SET hour = 9223372036854775807;",
        b"UPDATE cell SET pair = 7, rounds = 0, depth = -1;",
        b"UPDATE change SET found_s = -1e300, pair = 7;",
        b"UPDATE tally SET bucket = -1, accepted = 99;",
        b"PRAGMA user_version = 99;",
        b"DROP TABLE cell;",
        b"DELETE FROM pair;",
    )
)


def run(data: bytes) -> None:
    folder = scratch() / "telemetry"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if data.startswith(_SQL):
        if b"attach" in data.lower() or b"vacuum" in data.lower() or b"recursive" in data.lower():
            return
        with closing(Database(folder)) as database:
            connection = database.connection
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in data.decode(errors="replace").split(";"):
                with suppress(sqlite3.Error, ValueError):
                    connection.execute(statement)
            with suppress(sqlite3.Error):
                connection.execute("COMMIT")
    else:
        (folder / FILE).write_bytes(data)
    with reading(folder) as connection_or_none:
        if connection_or_none is not None:
            report = read_report(connection_or_none)
            list(lines(report))
            as_json(report)
            html_page(report, 0.0)
            list(told_replies(list_replies(connection_or_none, 20)))
    for prior in read_prior(folder, Pair("t", "d"), "code", greedy=False, now_s=7200.0).values():
        for each in (*prior.positions.values(), *prior.gaps.values()):
            _ = each.rate, each.weight
