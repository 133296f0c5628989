"""Arms: draft modes and settings as they are written on the command line."""

import pytest

from localspec.bench.arms import mode_arms, parse_arm
from localspec.errors import UsageError
from localspec.options import LaunchOptions, LoadOptions

USUAL = LaunchOptions(pair="p", draft_model="d", load=LoadOptions(threads=2))


def test_arms_that_differ_in_the_mode_alone_share_their_models() -> None:
    texts = ("off", "auto", "model:3", "auto,threads=1", "threads=1")
    off, auto, model, slow, other = (parse_arm("a", text, USUAL) for text in texts)
    assert (model.mode, model.launch) == ("model:3", USUAL)
    assert off.models == auto.models == model.models != slow.models
    assert slow.launch.load.threads == 1
    assert other == parse_arm("a", "threads=1", USUAL)
    assert other.mode == "auto"


def test_another_target_comes_without_the_usual_draft_model() -> None:
    arm = parse_arm("a", "target=q8.gguf,draft=lookup:8,kv_type=f16,ctx=512,exact=on", USUAL)
    assert (arm.launch.pair, arm.launch.target, arm.launch.draft_model) == (None, "q8.gguf", None)
    assert (arm.mode, arm.launch.load.n_ctx, arm.launch.exact) == ("lookup:8", 512, True)
    assert parse_arm("a", "draft-model=e", USUAL).launch.draft_model == "e"


@pytest.mark.parametrize(
    "text",
    ["", ",", "fast", "off,off", "seed=3", "threads=two", "exact=1", "pair=", "off,", "ctx=-1", "model:0"],
)  # fmt: skip
def test_an_arm_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arm("a", text, USUAL)


@pytest.mark.parametrize(
    ("text", "launch", "modes"),
    [
        ("auto, lookup:8,auto", LaunchOptions(), ["off", "auto", "lookup:8"]),
        ("model:3,off", LaunchOptions(), ["off", "model:3"]),
        (None, LaunchOptions(), ["off", "auto", "lookup"]),
        (None, LaunchOptions(pair="qwen3-8b"), ["off", "auto", "lookup", "model"]),
        (None, LaunchOptions(pair="qwen3.5-4b"), ["off", "auto", "lookup", "heads"]),
        (None, LaunchOptions(target="a", draft_model="b"), ["off", "auto", "lookup", "model"]),
        (None, LaunchOptions(target="a"), ["off", "auto", "lookup"]),
    ],
)
def test_modes_begin_with_off(text: str | None, launch: LaunchOptions, modes: list[str]) -> None:
    assert [arm.mode for arm in mode_arms(text, launch)] == modes


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *((each, "mode") for each in ("", ",", "fast", "lookup:", "off:3", "model:-1", "server:none")),
        *((each, "1 to 63") for each in ("lookup:0", "model:64", "model:9999")),
    ],
)  # fmt: skip
def test_what_is_no_mode_is_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        mode_arms(text, LaunchOptions())
