import pytest

from localspec.bench.arms import mode_arms, parse_arm
from localspec.errors import UsageError
from localspec.options import LaunchOptions, LoadOptions

USUAL = LaunchOptions(pair="p", draft_model="d", load=LoadOptions(threads=2))


def test_bare_word_is_a_draft_mode_and_the_rest_is_as_usual() -> None:
    arm = parse_arm("a", "model:3", USUAL)
    assert (arm.mode, arm.launch) == ("model:3", USUAL)
    assert parse_arm("a", "threads=1", USUAL).mode == "auto"


def test_arms_that_differ_in_the_mode_alone_share_their_models() -> None:
    off, auto, slow = (parse_arm("a", text, USUAL) for text in ("off", "auto", "auto,threads=1"))
    assert off.models == auto.models
    assert slow.models != auto.models
    assert slow.launch.load.threads == 1


def test_another_target_comes_without_the_usual_draft_model() -> None:
    arm = parse_arm("a", "target=q8.gguf,draft=lookup:8,kv_type=f16,ctx=512,exact=on", USUAL)
    assert (arm.launch.pair, arm.launch.target, arm.launch.draft_model) == (None, "q8.gguf", None)
    assert (arm.mode, arm.launch.load.n_ctx, arm.launch.exact) == ("lookup:8", 512, True)
    assert parse_arm("a", "draft-model=e", USUAL).launch.draft_model == "e"


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "fast", "off,off", "seed=3", "threads=two", "exact=1", "pair=", "off,", "ctx=-1", "model:0",
    ],
)  # fmt: skip
def test_arm_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arm("a", text, USUAL)


def modes(text: str | None, launch: LaunchOptions | None = None) -> list[str]:
    return [arm.mode for arm in mode_arms(text, launch or LaunchOptions())]


def test_off_is_always_among_the_modes_and_none_occurs_twice() -> None:
    assert modes("auto, lookup:8,auto") == ["off", "auto", "lookup:8"]
    assert modes("model:3,off") == ["off", "model:3"]


def test_the_usual_modes_draft_by_a_model_where_there_is_one() -> None:
    assert modes(None) == ["off", "auto", "lookup"]
    assert modes(None, LaunchOptions(pair="qwen3-8b")) == ["off", "auto", "lookup", "model"]
    assert modes(None, LaunchOptions(target="a", draft_model="b"))[-1] == "model"
    assert modes(None, LaunchOptions(target="a"))[-1] == "lookup"


@pytest.mark.parametrize(
    "text", ["", ",", "fast", "lookup:", "off:3", "model:-1", "server", "server:none"]
)
def test_what_is_no_mode_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mode"):
        modes(text)


@pytest.mark.parametrize("text", ["lookup:0", "model:64", "model:9999"])
def test_a_draft_length_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 63"):
        modes(text)
