"""`--gate` on real weights: what an answer forced to contain secrets shows of them on every way out."""

import json
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, answer, localspec

KEY_FORM = "My key is ghp_[a-c]{36}, ask ann@example\\.org!"
MASKED = "My key is [masked: GitHub token], ask [masked: e-mail address]!"
FORCED = ("--regex", KEY_FORM, "--seed", "1")
LONG = ("--max-tokens", "120")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smollm2_path")]


def test_secrets_are_masked_on_every_way_out(tmp_path: Path) -> None:
    flags = ("--gate", "usual", *FORCED, *LONG)
    assert answer("Hi", *flags).out == f"{MASKED}\n"
    assert answer("Hi", *flags, "--draft", "lookup").out == f"{MASKED}\n"
    document = json.loads(answer("Hi", "--json", *flags).out)
    assert (document["text"], document["stop_reason"]) == (MASKED, "eog")
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hi"}\n')
    record = localspec("batch", *PLAIN, *flags, str(tmp_path / "in.jsonl"))
    assert json.loads(record.out)["text"] == MASKED
    assert "ghp_" not in record.out + record.err


def test_a_rule_stops_the_answer_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("use = ['secrets']\naction = 'stop'\n")
    words = ("run", *PLAIN, "Hi", "--gate", str(tmp_path / "rules.toml"), *FORCED)
    # An answer that a rule stopped is not complete.
    stopped = localspec(*words, "--json", *LONG)
    document = json.loads(stopped.out)
    assert stopped.code == 6
    assert document["text"] == "My key is [masked: GitHub token]"
    assert document["stop_reason"] == "gated"
    assert "stopped by a rule of --gate" in localspec(*words, *LONG).err
    cut = localspec(*words, "--max-tokens", "9")
    assert cut.code == 6
    assert "ghp_" not in cut.out
