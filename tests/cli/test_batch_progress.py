"""How far a batch is: what fits into the terminal, the most important first."""

import time

import pytest

from localspec.batch.batch import Tally
from localspec.cli.batch import progress_text, summary
from localspec.cli.progress import ProgressLine


def test_done_failed_time_left_and_speed_are_told() -> None:
    text = progress_text(Tally(30, 2, 500), 10.0, share=0.5, share_before=0.25)
    assert text == "30 done, 2 failed, 20 s left, 50.0 tokens/s"


def test_what_is_not_known_is_not_told() -> None:
    assert progress_text(Tally(3, 0, 5), 10.0, None, 0.0) == "3 done, 0.5 tokens/s"
    assert progress_text(Tally(3), 0.0, 0.5, 0.5) == "3 done"


def test_a_summary_names_no_speed_where_nothing_was_generated() -> None:
    assert summary(Tally(3, 1), 0.0) == "3 answered · 1 failed"
    told = summary(Tally(0, 1, first_error="line 1: the prompt is empty"), 0.0)
    assert told == "0 answered · 1 failed · the first that failed, line 1: the prompt is empty"
    assert summary(Tally(3, 0, 50), 10.0) == "3 answered · 50 tokens, 5.0 tokens/s"


def test_where_lines_are_not_drawn_over_they_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with ProgressLine(enabled=True, drawing=False, notice_s=30) as progress:
        for second in range(100):
            now = float(second)
            progress.report(progress_text(Tally(second), now, None, 0.0))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"localspec: {second} done" for second in (30, 60, 90)
    ]
