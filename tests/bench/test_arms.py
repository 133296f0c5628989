import pytest

from localspec.bench.arms import parse_arm
from localspec.errors import UsageError
from localspec.options import LaunchOptions, LoadOptions

USUAL = LaunchOptions(pair="p", draft_model="d", load=LoadOptions(threads=2))


def test_bare_word_is_a_draft_mode_and_the_rest_is_as_usual() -> None:
    arm = parse_arm("model:3", USUAL)
    assert (arm.mode, arm.launch) == ("model:3", USUAL)
    assert parse_arm("threads=1", USUAL).mode == "auto"


def test_arms_that_differ_in_the_mode_alone_share_their_models() -> None:
    off, auto, slow = (parse_arm(text, USUAL) for text in ("off", "auto", "auto,threads=1"))
    assert off.models == auto.models
    assert slow.models != auto.models
    assert slow.launch.load.threads == 1


def test_another_target_comes_without_the_usual_draft_model() -> None:
    arm = parse_arm("target=q8.gguf,draft=lookup:8,kv_type=f16,ctx=512,exact=on", USUAL)
    assert (arm.launch.pair, arm.launch.target, arm.launch.draft_model) == (None, "q8.gguf", None)
    assert (arm.mode, arm.launch.load.n_ctx, arm.launch.exact) == ("lookup:8", 512, True)
    assert parse_arm("draft-model=e", USUAL).launch.draft_model == "e"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "fast",
        "off,off",
        "seed=3",
        "threads=two",
        "exact=1",
        "pair=",
        "off,",
        "ctx=-1",
        "model:0",
    ],
)
def test_arm_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arm(text, USUAL)
