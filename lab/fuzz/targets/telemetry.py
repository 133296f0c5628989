"""The telemetry's log as an earlier version wrote it, damaged or made by another program."""

import shutil

from lab.fuzz.scratch import scratch
from localspec.telemetry.log import LINES, read_prior, read_records, size_bytes
from localspec.telemetry.reply import Pair
from localspec.telemetry.report import make_report
from localspec.telemetry.text import proposals
from localspec.telemetry.view import as_json, html_page, replies_view, terminal_view

RECORD = b"""
{"kind": "reply", "at": 3600.0, "pair": {"target": "t", "draft_model": "d", "plain_s": 0.02, "at_once": 1},\
 "greedy": false, "prompt": 5, "workload": "code", "by_user": false, "id": 1, "tokens": 9, "prefill_s": 0.1,\
 "decode_s": 1.0, "wall_s": 1.2, "cells": [["off", 0, 30, 0, 0, 30, 0, 0, 100000, 9, 8, 7],\
 ["model", 256, 5, 9, 4, 9, 1, 2000, 100000, 9, 8, 7]], "tallies": {"model": {"position": [[5, 3]],\
 "confidence": [[0, 0], [5, 3]], "gap": [[5, 3]], "rank": [[2, 0]]}}, "lots": {"model": [[5, 9, 4]]}}
{"kind": "shift", "at": 3600.0, "pair": "t + d", "workload": "code", "drafter": "model", "since_s": 3000.0,\
 "before": 0.5, "after": 0.25}
{"kind": "text", "at": 3600.0, "id": 1, "prompt": [1, 2], "rounds": [{"confirmed": [3], "draft_ids": [4],\
 "accepted": 0, "next_id": 3, "correction_rank": null, "confidences": [0.5], "drafter": "model"}],\
 "pieces": {"1": "61", "2": "62", "3": "63", "4": "64"}}
{"kind": "retag", "at": 3601.0, "id": 1, "workload": "chat"}
"""
SEEDS = (
    RECORD,
    *(
        RECORD.replace(before, after)
        for before, after in (
            (b"3600.0", b"1e300"),
            (b"3600.0", b"9007199254740992.0"),
            (b"[[5, 3]]", b"[[0, 0]]"),
            (b'"off", 0, 30', b'"off", 9007199254740992, 30'),
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
    (folder / LINES).write_bytes(data)
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
