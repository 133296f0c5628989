"""`localspec run` on real weights: what it prints where, and what its options do."""

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.storage.paths import data_dir
from tests.cli.command import Done, answer, localspec

pytestmark = [pytest.mark.weights, pytest.mark.usefixtures("smollm2_path")]

# Where texts are compared nothing is drafted, so that all passes have one width and round alike.
STORY = ("--raw", "Once upon a time", "--draft", "off", "--max-tokens", "24")


def figures(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    done = answer("--json", *arguments, stdin=stdin)
    assert done.err == ""
    assert done.out.count("\n") == 1
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.fixture(scope="module")
def story(smollm2_path: object) -> dict[str, Any]:
    """The likeliest story."""
    return figures(*STORY, "--temperature", "0")


@pytest.fixture(scope="module")
def fresh(smollm2_path: object) -> dict[str, Any]:
    """A story with a fresh seed."""
    return figures(*STORY)


@pytest.fixture(scope="module")
def streamed(fresh: dict[str, Any]) -> Done:
    """The same story, told again by its seed and streamed."""
    return answer(*STORY, "--seed", str(fresh["seed"]))


@pytest.fixture(scope="module")
def counting(smollm2_path: object) -> dict[str, Any]:
    """A text in which lookup finds what to draft."""
    counted = "1, 2, 3, 4, 5, 6, 7, 8, 9. " * 4
    return figures(
        "--raw", counted, "--draft", "lookup", "--max-tokens", "40", "--temperature", "0"
    )


def test_the_seed_that_is_reported_gives_the_same_text(
    fresh: dict[str, Any], streamed: Done
) -> None:
    text = fresh["text"]
    assert streamed.out == (text if text.endswith("\n") else text + "\n")


def test_every_run_without_a_seed_draws_one(
    fresh: dict[str, Any], counting: dict[str, Any]
) -> None:
    assert fresh["seed"] != counting["seed"]


def test_stdout_has_the_answer_and_stderr_one_line_of_figures(
    fresh: dict[str, Any], streamed: Done
) -> None:
    first, *rest = streamed.err.splitlines(keepends=True)[-1].split(" · ")
    assert first == "localspec: smollm2-135m"
    assert rest[0] == f"{fresh['usage']['completion_tokens']} tokens"
    assert rest[-1] == f"seed {fresh['seed']}\n"
    assert "no drafting: it is switched off" in rest


@pytest.mark.slow
def test_quiet_leaves_stderr_empty_and_another_seed_gives_another_text(
    streamed: Done, fresh: dict[str, Any]
) -> None:
    other = answer(*STORY, "-q", "--seed", str(fresh["seed"] + 1))
    assert other.err == ""
    assert other.out != streamed.out


def test_json_has_the_promised_keys_and_types(counting: dict[str, Any]) -> None:
    before = ["load_s", "prefill_s", "draft_prefill_s", "first_token_s", "decode_s"]
    stages = ["draft_s", "verify_s", "sample_s", "other_s"]
    rates = {
        "rounds": int,
        "drafted": int,
        "accepted": int,
        "acceptance_rate": float,
        "mean_acceptance_length": float,
        "branches": int,
        "branches_accepted": int,
    }
    plain = {**rates, "acceptance_rate": type(None)}
    shape = {
        "text": str,
        "stop_reason": str,
        "complete": bool,
        "seed": int,
        "workload": str,
        "model": {"target": str, "draft_model": type(None)},
        "usage": {"prompt_tokens": int, "completion_tokens": int},
        "timings": dict.fromkeys([*before, *stages, "tokens_per_s"], float),
        "speculation": {"drafter": str, **rates, "by_drafter": {"off": plain, "lookup": rates}},
    }

    def shape_of(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape_of(inner) for key, inner in value.items()}
        return type(value)

    assert shape_of(counting) == shape


def test_counts_agree_with_each_other(counting: dict[str, Any]) -> None:
    speculation = counting["speculation"]
    confirmed_in_rounds = counting["usage"]["completion_tokens"] - 1  # prefill gives the first
    assert speculation["drafter"] == "lookup"
    assert 0 < speculation["accepted"] <= speculation["drafted"]
    assert speculation["accepted"] + speculation["rounds"] == confirmed_in_rounds
    rate = speculation["accepted"] / speculation["drafted"]
    assert speculation["acceptance_rate"] == pytest.approx(rate, abs=1e-6)
    length = confirmed_in_rounds / speculation["rounds"]
    assert speculation["mean_acceptance_length"] == pytest.approx(length, abs=1e-6)
    plain, lookup = speculation["by_drafter"]["off"], speculation["by_drafter"]["lookup"]
    for count in ("rounds", "drafted", "accepted", "branches", "branches_accepted"):
        assert plain[count] + lookup[count] == speculation[count], count
    # Rounds in which lookup found nothing were plain ones.
    assert (plain["drafted"], plain["mean_acceptance_length"]) == (0, 1.0)
    assert lookup["drafted"] >= lookup["rounds"]


def test_stages_add_up_to_the_time_of_decoding(counting: dict[str, Any]) -> None:
    timings = counting["timings"]
    stages = [timings[f"{stage}_s"] for stage in ("draft", "verify", "sample", "other")]
    assert min(stages) >= 0
    assert sum(stages) == pytest.approx(timings["decode_s"], abs=1e-5)
    assert 0 < timings["prefill_s"] <= timings["first_token_s"]
    rate = (counting["usage"]["completion_tokens"] - 1) / timings["decode_s"]
    assert timings["tokens_per_s"] == pytest.approx(rate, rel=1e-3)


def test_max_tokens_ends_the_answer(counting: dict[str, Any]) -> None:
    assert counting["stop_reason"] == "length"
    assert counting["usage"]["completion_tokens"] == 40


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(story: dict[str, Any]) -> None:
    stop = story["text"][10:14]
    cut = figures(*STORY, "--temperature", "0", "--stop", "~~~", "--stop", stop)
    assert cut["stop_reason"] == "stop_string"
    assert cut["text"] == story["text"][: story["text"].index(stop)]


@pytest.mark.slow
def test_system_prompt_and_piped_material_go_through_the_chat_template() -> None:
    common = ("--seed", "5", "--max-tokens", "8", "--draft", "off")
    rendered = (
        "<|im_start|>system\nYou are a pirate.<|im_end|>\n"
        "<|im_start|>user\nWhat is this?\n\nA parrot.<|im_end|>\n<|im_start|>assistant\n"
    )
    by_hand = figures("--raw", rendered, *common)
    asked = figures("--system", "You are a pirate.", "What is this?", *common, stdin=b"A parrot.\n")
    assert asked["usage"] == by_hand["usage"]
    assert asked["text"] == by_hand["text"]


@pytest.mark.first(1)
@pytest.mark.parametrize("dash", [[], ["-"]])
def test_a_prompt_comes_from_stdin(story: dict[str, Any], dash: list[str]) -> None:
    options = ("--raw", *dash, *STORY[2:], "--temperature", "0")
    assert figures(*options, stdin=b"Once upon a time\n")["text"] == story["text"]


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_says_how_long_both_are() -> None:
    done = localspec("run", "-m", "demo", "--ctx", "256", stdin=b"word " * 600)
    assert done.code == 1
    assert done.out == ""
    # A machine that was busy is measured again, which is told first, and nothing else is.
    *before, said = done.err.splitlines()
    assert all(
        line.startswith(("localspec: measuring ", "localspec: measured ")) for line in before
    )
    assert said.startswith("localspec: the prompt has 6")
    assert said.endswith("tokens and the context holds 256: shorten it, or raise --ctx")


@pytest.mark.slow
def test_a_model_by_another_name_a_system_prompt_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("The meeting is on Monday.")
    words = ("smollm2:135m", "When is the meeting?", "-s", "Be brief.")
    short = figures(*words, "-n", "3")
    attached = figures(*words, "-n", "3", "-f", str(tmp_path / "note.txt"))
    assert short["model"]["target"] == "smollm2-135m"
    assert short["usage"]["completion_tokens"] == 3
    assert attached["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"] + 6


@pytest.mark.slow
def test_what_is_kept_goes_on_and_a_pipe_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = data_dir()
    for name in ("blobs", "calibration"):
        (tmp_path / name).symlink_to(models / name)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    usual = ("--max-tokens", "4", "--draft", "off")
    figures("Hello", *usual)
    assert not (tmp_path / "history").exists()
    first = figures("Hello", "--keep", *usual)
    second = figures("And you?", "-c", *usual)
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]
