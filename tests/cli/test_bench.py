"""`localspec bench`: a real, short measurement, and the ways in which it cannot begin."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, assert_one_complaint, localspec, started
from tests.cli.test_interrupt import interrupt
from tests.lab.fake_server import fake_server

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
def test_a_peer_is_measured_beside_us(prompts: Path, tmp_path: Path) -> None:
    program = fake_server(tmp_path)
    done = localspec(
        "bench", *PLAIN, *SHORT, "--prompts", str(prompts), "--json",
        "--modes", "server:none,lookup", "--against", f"llama-server={program}",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {row["peer"] for row in found["against"]} == {"server:none", "best"}
    assert {row["mode"] for row in found["against"]} == {"off", "lookup"}


@pytest.mark.weights
def test_a_heavier_target_and_a_draft_model_that_knows_nothing_are_made_and_labelled(
    prompts: Path, tmp_path: Path, smollm2_path: Path
) -> None:
    made = tmp_path / "data"
    done = localspec(
        "bench", *PLAIN, "--target", str(smollm2_path), "--draft-model", "random",
        "--synthetic", "2", "--prompts", str(prompts), "--modes", "model:3", "--json",
        "--max-tokens", "8", "--temperature", "0", env={"LOCALSPEC_DATA_DIR": str(made)},
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["target"]["name"] == f"synthetic 2x {smollm2_path}"
    assert found["target"]["synthetic"] == 2
    assert found["draft_model"]["name"] == f"random weights like {smollm2_path}"
    assert found["draft_model"]["random"]
    drafted = [row for row in found["figures"] if row["mode"] == "model:3"]
    assert all(row["acceptance_rate"] < 0.2 for row in drafted)
    kept = sorted((made / "synthetic").iterdir())
    assert len(kept) == 2
    for path in kept:
        assert f"{path} (" in done.err


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize("behaviour", ["ends", "refuses"])
def test_a_peer_that_fails_is_one_complaint(prompts: Path, tmp_path: Path, behaviour: str) -> None:
    against = f"llama-server={fake_server(tmp_path, behaviour)}"
    done = localspec(
        "bench", *PLAIN, "--prompts", str(prompts), "--modes", "server:none", "--against", against
    )
    assert_one_complaint(done, 1)
    assert "llama-server" in done.err


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
        (("--modes", "server:none"), "--against llama-server=PATH"),
        (("--modes", "lookup:99"), "draft_length is 99"),
        (("--against", "llama-server=/no/such/file"), "there is no file /no/such/file"),
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
    assert f"{path}:2: 'prompt' is missing" in done.err


def test_a_prompt_file_that_is_not_there_is_told(bare_machine: dict[str, str]) -> None:
    done = localspec("bench", "--prompts", "none.jsonl", env=bare_machine)
    assert_one_complaint(done, 2)
    assert "none.jsonl cannot be read" in done.err
