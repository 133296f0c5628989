import json

import pytest

from localspec.cli import recommend as verb
from localspec.errors import ModelUnavailable
from localspec.models.recommend import Memory
from tests.cli.command import localspec


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
    ("free_gb", "lines"),
    [
        (
            27,
            [
                "gemma4-26b-a4b  ≈ 28 tokens/s, 15.1 GB of RAM: chat, fast on a CPU with 32 GB of memory",
                "gpt-oss-20b     ≈ 29 tokens/s, 12.7 GB of RAM: reasoning with 24 GB of memory",
                "gemma4-12b      ≈ 8.6 tokens/s, 7.6 GB of RAM: chat with 16 GB of memory, or 12 GB on a GPU",
            ],
        ),
        (
            1.5,
            [
                "gemma3-1b  ≈ 74 tokens/s, 1.4 GB of RAM, more than 60% of free memory: chat with 4 GB of memory"
            ],
        ),
    ],
)
def test_people_are_told_the_same_in_lines(
    free_gb: float,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory = Memory("RAM", round(free_gb * 1e9), 60e9)
    monkeypatch.setattr(verb, "memories", lambda _registry: [memory])
    verb.recommend_.main([], standalone_mode=False)
    told = capsys.readouterr()
    assert told.out.splitlines() == lines
    assert f"RAM: {free_gb:.1f} GB free, read at 60 GB/s" in told.err
    assert f"localspec pull {lines[0].split()[0]}" in told.err


def test_where_nothing_fits_the_toy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "memories", lambda _registry: [Memory("RAM", 10**8, None)])
    with pytest.raises(ModelUnavailable, match=r"no model for code fits .* smollm2-135m"):
        verb.recommend_.main(["--code"], standalone_mode=False)
