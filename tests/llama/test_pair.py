"""Loading a pair: what can draft, what cannot, and the notes about it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import Cancelled
from localspec.launch.drafting import draft_mode
from localspec.launch.load import Runtime, load
from localspec.launch.plan import LoadPlan, make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from tests.llama.tiny_mamba import SUPPRESSED, write

Open = Callable[..., Runtime]


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "mamba.gguf")


@pytest.fixture
def opened() -> Iterator[Open]:
    """Load a pair that looks up and is ready for drafting by its model, or a target alone."""
    runtimes = list[Runtime]()

    def opened(target: Path, draft_model: Path | None = None, n_ctx: int = 256) -> Runtime:
        launch = LaunchOptions(target=str(target), draft="off", load=LoadOptions(n_ctx), fit=False)
        plan = make_plan(launch)
        if draft_model is not None:
            modes = (draft_mode("lookup:3"), draft_mode("model:3"))
            names = {target: "target", draft_model: "draft"}
            options = replace(plan.options, max_rows=4)
            # Vocabularies that no pair could have: only what memories are like matters here.
            plan = LoadPlan(target, draft_model, names, modes, 20, options, fit=False)
        runtimes.append(load(plan))
        return runtimes[-1]

    yield opened
    for each in runtimes:
        each.assistant.close()


def test_a_recurrent_target_runs_without_drafting_and_says_so(mamba: Path, opened: Open) -> None:
    assistant = opened(mamba, mamba).assistant
    assert assistant.policy.name == "off"
    assert assistant.models.draft_model is None
    assert any("without drafting" in note for note in assistant.notes)
    assert list(assistant.models.suppressed) == SUPPRESSED, "what the file forbids"


def test_a_recurrent_model_after_a_changed_past(mamba: Path, opened: Open) -> None:
    runtime = opened(mamba)
    target, cancel, text = runtime.target, runtime.assistant.models.cancel, [1, 2, 3, 4, 9]
    straight = target.logits(text, rows=1).copy()
    target.logits([1, 2, 3, 4, 5, 6, 7], rows=1)
    # Nothing of it can be cut off, so all of it is evaluated again.
    np.testing.assert_allclose(target.logits(text, rows=1), straight, atol=1e-5)
    target.logits([1, 2, 3], rows=1)
    cancel.set()
    with pytest.raises(Cancelled):
        target.logits([1, 2, 3, 4, 5], rows=1)
    cancel.clear()
    assert target.n_cached == 0
    np.testing.assert_allclose(target.logits(text, rows=1), straight, atol=1e-5)


@pytest.mark.parametrize("draft", ["auto", "lookup"])
def test_a_recurrent_target_evaluates_all_and_never_drafts(mamba: Path, draft: str) -> None:
    launch, options = LaunchOptions(target=str(mamba), draft=draft), ReplyOptions(max_tokens=24)
    assistant, other = load(make_plan(launch)).assistant, load(make_plan(launch)).assistant
    assert assistant.notes
    # Longer than a chunk, and nothing of it stays, though the next one begins with what was evaluated.
    assistant.reply("x" * 200 + "abc" * 30, replace(options, seed=1))
    again, fresh = (
        each.reply("x" * 200 + "abc" * 9, replace(options, seed=2)) for each in (assistant, other)
    )
    assert (again.drafter, again.acceptance.drafted) == ("off", 0)
    assert again.tokens == fresh.tokens
    assistant.close()
    other.close()


@pytest.mark.weights
def test_a_recurrent_draft_model_is_left_out(mamba: Path, smollm2_path: Path, opened: Open) -> None:
    runtime = opened(smollm2_path, mamba)
    assert runtime.drafting.longest > 0
    assert runtime.assistant.models.draft_model is None
    assert any("draft model" in note for note in runtime.assistant.notes)


@pytest.mark.weights
def test_a_context_beyond_the_training_is_cut_and_says_so(smollm2_path: Path, opened: Open) -> None:
    runtime = opened(smollm2_path, n_ctx=100_000)
    assert runtime.target.n_ctx == 8192
    assert any("8192" in note and "100000" in note for note in runtime.assistant.notes)
