import json

import pytest

from localspec.cli import pull as verb
from localspec.errors import ModelUnavailable
from localspec.launch import rows
from localspec.models.recommend import Memory
from tests.cli.command import localspec

GB = 10**9


def test_proposals_have_a_speed_and_a_size() -> None:
    done = localspec("recommend", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert [each["name"] for each in document["memories"]][-1] == "RAM"
    assert document["memories"][-1]["bytes_per_s"] > 0
    for each in document["proposals"]:
        assert each["suits"] in {"well", "slow", "tight"}
        assert each["read_bytes"] < each["needed_bytes"]


@pytest.mark.parametrize(
    ("memory", "here", "lines", "advice"),
    [
        (
            Memory("RAM", 32 * GB, 60e9, free_bytes=14 * GB),
            "gemma4-26b-a4b",
            [
                "* gemma4-26b-a4b  14.4 GB  ≈ 28 tokens/s estimated, 15.1 GB RAM, more than is free now: chat, fast on a CPU · needs 32 GB",
                "  gpt-oss-20b     12.1 GB  ≈ 29 tokens/s estimated, 12.7 GB RAM: reasoning · needs 24 GB",
                "  gemma4-12b      7.0 GB   ≈ 8.6 tokens/s estimated, 7.6 GB RAM: chat · needs 16 GB, or 12 GB on a GPU",
            ],
            "start the first with `localspec chat gemma4-26b-a4b`",
        ),
        (
            Memory("RAM", 2 * GB, 60e9),
            "",
            [
                "  gemma3-1b  806 MB  ≈ 74 tokens/s estimated, 1.4 GB RAM, more than 50% of it: chat · needs 4 GB"
            ],
            "download the first with `localspec pull gemma3-1b`",
        ),
    ],
)
def test_people_are_told_the_same_in_lines(
    memory: Memory,
    here: str,
    lines: list[str],
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verb, "memories", lambda _registry: [memory])
    monkeypatch.setattr(rows, "is_here", lambda model: model is not None and model.name == here)
    verb.recommend_.main([], standalone_mode=False)
    told = capsys.readouterr()
    assert told.out.splitlines() == lines
    assert f"RAM: {memory.total_bytes / GB:.1f} GB" in told.err
    assert ", read at 60 GB/s" in told.err
    assert told.err.splitlines()[-1] == advice


def test_where_nothing_fits_the_toy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "memories", lambda _registry: [Memory("RAM", 10**8, None)])
    with pytest.raises(ModelUnavailable, match=r"no model for code fits .* smollm2-135m"):
        verb.recommend_.main(["--code"], standalone_mode=False)


def test_beside_other_programs_predictions_are_said_to_be_of_a_quiet_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "memories", lambda _registry: [Memory("RAM", 32 * GB, 60e9)])
    monkeypatch.setattr(verb, "taken_by_others", lambda: (1.5, 2))
    verb.recommend_.main([], standalone_mode=False)
    busy = "other programs are using 1.5 of 2 cores; the predicted speeds are for a quiet machine"
    assert busy in " ".join(capsys.readouterr().err.split())
