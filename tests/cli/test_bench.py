"""`localspec bench`: a real, short measurement, and the ways in which it cannot begin."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, assert_one_complaint, localspec, started
from tests.cli.test_interrupt import interrupt

pytestmark = pytest.mark.slow

SHORT = ("--max-tokens", "8", "--repeat", "2", "--temperature", "0,0.8")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"workload": "chat", "prompt": "Say hello."},
        {"workload": "edit", "prompt": "Repeat: one two three one two three one two three"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_short_measurement_gives_a_ratio_for_every_kind_mode_and_temperature(
    prompts: Path,
) -> None:
    done = localspec(
        "bench", *PLAIN, *SHORT, "--prompts", str(prompts), "--modes", "lookup:3", "--json"
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    places = {(row["workload"], row["mode"], row["temperature"]) for row in found["ratios"]}
    assert places == {(w, "lookup:3", t) for w in ("chat", "edit", "all") for t in (0.0, 0.8)}
    for row in found["ratios"]:
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
    assert found["runs"] == found["runs_planned"] == 16
    assert found["target"]["name"] == "smollm2-135m"
    for row in found["figures"]:
        assert row["runs"] == (8 if row["workload"] == "all" else 4) / 2
        assert sum(row["time"].values()) == pytest.approx(1, abs=1e-4)
        assert row["time"]["other"] >= 0


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_the_table_says_what_was_compared_and_stderr_has_no_figures(prompts: Path) -> None:
    done = localspec(
        "bench", *PLAIN, "--max-tokens", "4", "--prompts", str(prompts), "--modes", "off,lookup"
    )
    assert done.code == 0, done.err
    for wanted in (
        "machine: ",
        "smollm2-135m",
        "speed, greedy",
        "where the time went, temperature",
    ):
        assert wanted in done.out
    assert "machine: " not in done.err
    assert "ratio" not in done.err


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_two_settings_are_compared_with_a_verdict(prompts: Path) -> None:
    arguments = ("--compare", "off", "lookup:3", "--pairs", "5", "--max-tokens", "4")
    done = localspec("bench", *PLAIN, *arguments, "--prompts", str(prompts), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["a"], found["b"], found["pairs"]) == ("off", "lookup:3", 5)
    assert 0 < found["low"] <= found["ratio"] <= found["high"]
    assert {row["workload"] for row in found["figures"]} == {"chat", "edit", "all"}
    text = localspec("bench", *PLAIN, *arguments, "--prompts", str(prompts)).out
    assert found["verdict"].split()[0] in {"a", "b", "undecided:"}
    assert "b (lookup:3)" in text


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_prints_what_was_measured_until_then(prompts: Path) -> None:
    arguments = ("--prompts", str(prompts), "--max-tokens", "8", "--repeat", "5000")
    with started("bench", *PLAIN, *arguments, "--modes", "lookup") as process:
        assert process.stderr is not None
        assert b"run 1 of " in process.stderr.readline()
        out, _ = interrupt(process, signal.SIGINT)
    assert "interrupted: " in out
    assert "speed, greedy" in out


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_reader_that_leaves_is_no_error(prompts: Path) -> None:
    shell = ("sh", "-c", '"$@" | head -1; echo done >&2', "sh")
    done = localspec(
        "bench", *PLAIN, "--max-tokens", "2", "--prompts", str(prompts), "--modes", "off",
        "--quiet", shell=shell,
    )  # fmt: skip
    assert done.out.startswith("machine: ")
    assert done.err == "done\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--modes", "fast"), "draft mode 'fast'"),
        (("--modes", "server:none"), "draft mode 'server:none'"),
        (("--compare", "off", "fast"), "draft mode 'fast'"),
        (("--compare", "off", "auto", "--pairs", "4"), "pairs is 4"),
        (("--compare", "off", "auto", "--modes", "off"), "--compare and --modes"),
        (("--compare", "off", "auto", "--repeat", "2"), "--compare and --repeat"),
        (("--pairs", "7"), "--pairs needs --compare"),
        (("--modes", "lookup:99"), "draft_length is 99"),
        (("--temperature", "warm"), "temperature 'warm' is not a number"),
        (("--temperature", "-1"), "temperature is -1"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--repeat", "0"), "repeat is 0"),
        (("--max-tokens", "0"), "max_tokens is 0"),
        (("--per-workload", "0"), "per_workload is 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_loaded(
    bare_machine: dict[str, str], arguments: tuple[str, ...], complaint: str
) -> None:
    done = localspec("bench", *arguments, env=bare_machine)
    assert_one_complaint(done, 2)
    assert complaint in done.err


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_pair_without_a_draft_model_cannot_draft_by_one() -> None:
    done = localspec("bench", *PLAIN, "--modes", "model", "--pair", "smollm2-135m")
    assert_one_complaint(done, 2)
    assert "no draft model" in done.err


def test_a_broken_line_of_a_prompt_file_is_named(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"workload": "chat", "prompt": "Hi"}\n{"workload": "chat"}\n')
    done = localspec("bench", "--prompts", str(path), env=bare_machine)
    assert_one_complaint(done, 2)
    assert f"{path}:2: Object missing required field `prompt`" in done.err


def test_a_prompt_file_that_is_not_there_is_told(bare_machine: dict[str, str]) -> None:
    done = localspec("bench", "--prompts", "none.jsonl", env=bare_machine)
    assert_one_complaint(done, 2)
    assert "none.jsonl cannot be read" in done.err


def test_the_old_name_names_the_new_one(bare_machine: dict[str, str]) -> None:
    done = localspec("ab", "--a", "off", "--b", "auto", env=bare_machine)
    assert_one_complaint(done, 2)
    assert "bench --compare" in done.err
