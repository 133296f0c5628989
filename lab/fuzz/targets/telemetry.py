"""The telemetry's log, damaged or made by another program: a record a line, the text of a reply behind a tab."""

import shutil
import sqlite3
from contextlib import closing

from lab.fuzz.target import scratch
from localspec.options.recording import Switch
from localspec.telemetry.log import FILE, read_prior, read_records, size_bytes, store
from localspec.telemetry.reply import Pair
from localspec.telemetry.report import make_report
from localspec.telemetry.text import proposals
from localspec.telemetry.view import as_json, html_page, replies_view, terminal_view

RECORD = b"""
{"type": "reply", "at": 3600.0, "pair": {"target": "t", "draft_model": "d", "plain_s": 0.02, "at_once": 1},\
 "greedy": false, "prompt": 5, "workload": "code", "by_user": false, "tokens": 9, "prefill_s": 0.1,\
 "decode_s": 1.0, "wall_s": 1.2, "cells": {"off": {"0": [30, 0, 0, 30, 0, 0, 100000, 9, 8, 7]},\
 "model": {"256": [5, 9, 4, 9, 1, 2000, 100000, 9, 8, 7]}}, "tallies": {"model": {"position": [[5, 3]],\
 "confidence": [[0, 0], [5, 3]], "gap": [[5, 3]], "rank": [[2, 0]]}}}\t\
{"prompt": [1, 2], "rounds": [{"confirmed": [3], "draft_ids": [4],\
 "accepted": 0, "next_id": 3, "correction_rank": null, "confidences": [0.5], "drafter": "model"}],\
 "pieces": {"1": "61", "2": "62", "3": "63", "4": "64"}}
{"type": "shift", "at": 3600.0, "pair": "t + d", "workload": "code", "drafter": "model", "since_s": 3000.0,\
 "before": 0.5, "after": 0.25}
{"type": "gate", "at": 3601.0, "rule": "a key", "action": "mask", "times": 2}
"""
SEEDS = (
    RECORD,
    *(
        RECORD.replace(before, after)
        for before, after in (
            (b"3600.0", b"1e300"),
            (b"3600.0", b"9007199254740992.0"),
            (b"[[5, 3]]", b"[[0, 0]]"),
            (b'"0": [30', b'"9007199254740992": [30'),
            (b" 100000,", b" 9007199254740992,"),
            (b'"confidences": [0.5]', b'"confidences": null'),
            (b'"plain_s": 0.02', b'"plain_s": 0'),
            (b'"t"', b'"\\u001b[2J"'),
            (b'"at_once": 1', b'"at_once": 0'),
        )
    ),
)


def run(data: bytes) -> None:
    folder = scratch() / "telemetry"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    store(folder, None, None, {}, Switch(), 0.0)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        for line in data.splitlines():
            body, _, text = line.partition(b"\t")
            insert = "INSERT INTO record(at, pair, workload, body, text) VALUES (0.0, 't + d', 'code', ?, ?)"
            connection.execute(insert, (body, text or None))
        connection.commit()
    records = read_records(folder)
    size_bytes(folder)
    report = make_report(records)
    terminal_view(report)
    as_json(report)
    html_page(report, 0.0)
    list(replies_view(records.replies.values()))
    list(proposals(folder))
    for gaps in read_prior(folder, Pair("t", "d"), "code", greedy=False, now_s=7200.0).values():
        for rate, weight in gaps.values():
            assert 0 <= rate <= 1
            assert weight > 0
