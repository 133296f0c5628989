"""The counts of `lab.same_text`, and that a second call continues behind the first."""

import json
import sys
from pathlib import Path

import pytest

from lab import same_text
from lab.same_text import Answer, counts


def test_texts_are_compared_with_the_first_mode_of_the_same_prompt() -> None:
    def answer(mode: str, prompt: int, *tokens: int) -> Answer:
        return Answer("m", "default", mode, 0.0, prompt, [*tokens], 2)

    answers = [answer("off", 0, 1, 2), answer("auto", 0, 1, 2), answer("off", 1, 5)]
    rows = counts([*answers, answer("auto", 1, 6)])
    found = [(row["mode"], row["texts"], row["differing"]) for row in rows]
    assert found == [("off", 2, 0), ("auto", 2, 1)]
    assert rows[1]["first_differences"] == [0]
    assert rows[1]["drafted"] == 4


@pytest.mark.slow
@pytest.mark.weights
def test_a_second_call_continues_behind_the_first(
    six_layers_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.jsonl"
    words = ("--modes", "off,lookup:3", "--kernels", "exact")
    few = ("--max-tokens", "3", "--temperatures", "0", "--target", str(six_layers_path))
    for prompts in (1, 2):
        monkeypatch.setattr(sys, "argv", ["x", str(out), *words, *few, "--prompts", str(prompts)])
        same_text.main()
        assert len(out.read_text().splitlines()) == 2 * prompts
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()[-2:]]
    kinds = {(row["kernels"], row["mode"], row["texts"]) for row in rows}
    assert kinds == {("exact", mode, 2) for mode in ("off", "lookup:3")}
    assert not any(row["differing"] for row in rows)
