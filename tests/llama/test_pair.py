"""Loading a pair: what can draft, what cannot, and what is said about it."""

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


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "mamba.gguf")


def opened(target: Path, draft_model: Path | None = None, n_ctx: int = 256) -> Runtime:
    """Load a pair that looks up and is ready for drafting by its model, or a target alone."""
    load_options = LoadOptions(n_ctx=n_ctx)
    plan = make_plan(LaunchOptions(target=str(target), draft="off", load=load_options, fit=False))
    if draft_model is None:
        return load(plan)
    modes = (draft_mode("lookup:3"), draft_mode("model:3"))
    options = replace(plan.options, max_rows=4)
    names = {target: "target", draft_model: "draft"}
    # Vocabularies that no pair could have: only what memories are like is looked at here.
    return load(LoadPlan(target, draft_model, names, modes, 20, options, fit=False))


def test_a_recurrent_target_is_recognised_and_says_that_it_runs_without_drafting(
    mamba: Path,
) -> None:
    assistant = opened(mamba, mamba).assistant
    assert assistant.policy.name == "off"
    assert assistant.models.draft_model is None
    assert any("without drafting" in note for note in assistant.notes)
    assistant.close()


def test_a_recurrent_model_answers_rightly_after_its_past_was_changed(mamba: Path) -> None:
    runtime = opened(mamba)
    target = runtime.target
    straight = target.logits([1, 2, 3, 4, 9], rows=1).copy()
    target.logits([1, 2, 3, 4, 5, 6, 7], rows=1)
    # Nothing of it can be cut off, so all of it is evaluated again.
    np.testing.assert_allclose(target.logits([1, 2, 3, 4, 9], rows=1), straight, atol=1e-5)
    runtime.assistant.close()


def test_a_recurrent_model_evaluates_a_prompt_that_begins_like_the_last_one(mamba: Path) -> None:
    launch, options = LaunchOptions(target=str(mamba)), ReplyOptions(seed=1, max_tokens=4)
    assistant, other = load(make_plan(launch)).assistant, load(make_plan(launch)).assistant
    assistant.reply("x" * 200 + "y" * 30, options)
    # Longer than a chunk, and nothing of it is kept, though it begins with what was evaluated.
    again = assistant.reply("x" * 200 + "z" * 20, options)
    assert again.text == other.reply("x" * 200 + "z" * 20, options).text
    assistant.close()
    other.close()


def test_of_a_recurrent_model_nothing_is_kept_after_a_pass_that_was_cancelled(mamba: Path) -> None:
    runtime = opened(mamba)
    target, cancel = runtime.target, runtime.assistant.models.cancel
    straight = target.logits([1, 2, 3, 4, 9], rows=1).copy()
    target.logits([1, 2, 3], rows=1)
    cancel.set()
    with pytest.raises(Cancelled):
        target.logits([1, 2, 3, 4, 5], rows=1)
    cancel.clear()
    assert target.n_cached == 0
    np.testing.assert_allclose(target.logits([1, 2, 3, 4, 9], rows=1), straight, atol=1e-5)
    runtime.assistant.close()


@pytest.mark.parametrize("draft", ["auto", "lookup"])
def test_lookup_is_not_tried_on_a_recurrent_target(mamba: Path, draft: str) -> None:
    assistant = load(make_plan(LaunchOptions(target=str(mamba), draft=draft))).assistant
    options = ReplyOptions(seed=1, max_tokens=24)
    reply = assistant.reply("abcabcabcabcabcabc", options)
    again = assistant.reply("abcabcabcabcabcabc", options)
    assert reply.drafter == "off"
    assert reply.acceptance.drafted == 0
    assert reply.tokens == again.tokens
    assert assistant.notes
    assistant.close()


def test_what_the_file_forbids_is_read(mamba: Path) -> None:
    assistant = load(make_plan(LaunchOptions(target=str(mamba)))).assistant
    assert list(assistant.models.suppressed) == SUPPRESSED
    assistant.close()


@pytest.mark.weights
def test_a_recurrent_draft_model_is_left_out(mamba: Path, smollm2_path: Path) -> None:
    runtime = opened(smollm2_path, mamba)
    assert runtime.drafting.longest > 0
    assert runtime.assistant.models.draft_model is None
    assert any("draft model" in note for note in runtime.assistant.notes)
    runtime.assistant.close()


@pytest.mark.weights
def test_a_context_beyond_the_training_is_cut_and_says_so(smollm2_path: Path) -> None:
    runtime = opened(smollm2_path, n_ctx=100_000)
    assert runtime.target.n_ctx == 8192
    assert any("8192" in note and "100000" in note for note in runtime.assistant.notes)
    runtime.assistant.close()
