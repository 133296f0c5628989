"""Opening a pair: what can draft, what cannot, and what is said about it."""

from pathlib import Path

import numpy as np
import pytest
from localspec.llama.pair import open_pair

from localspec.decoding.cancel import CancelFlag
from localspec.launch import prepare
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from tests.llama.tiny_mamba import SUPPRESSED, write


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "mamba.gguf")


def test_a_recurrent_target_is_recognised_and_says_that_it_runs_without_drafting(
    mamba: Path,
) -> None:
    pair = open_pair(mamba, mamba, LoadOptions(n_ctx=256), CancelFlag())
    assert not pair.can_draft
    assert pair.draft_model is None
    assert any("without drafting" in note for note in pair.notes)
    pair.close()


def test_a_recurrent_model_answers_rightly_after_its_past_was_changed(mamba: Path) -> None:
    pair = open_pair(mamba, None, LoadOptions(n_ctx=256), CancelFlag())
    target = pair.target
    straight = target.logits([1, 2, 3, 4, 9], rows=1).copy()
    target.logits([1, 2, 3, 4, 5, 6, 7], rows=1)
    # Nothing of it can be cut off, so all of it is evaluated again.
    np.testing.assert_allclose(target.logits([1, 2, 3, 4, 9], rows=1), straight, atol=1e-5)
    pair.close()


@pytest.mark.parametrize("draft", ["auto", "lookup"])
def test_lookup_is_not_tried_on_a_recurrent_target(mamba: Path, draft: str) -> None:
    assistant = prepare(LaunchOptions(target=str(mamba), draft=draft)).load()
    options = ReplyOptions(seed=1, max_tokens=24)
    reply = assistant.reply("abcabcabcabcabcabc", options)
    again = assistant.reply("abcabcabcabcabcabc", options)
    assert reply.drafter == "off"
    assert reply.acceptance.drafted == 0
    assert reply.tokens == again.tokens
    assert assistant.notes
    assistant.close()


def test_what_the_file_forbids_is_read(mamba: Path) -> None:
    assistant = prepare(LaunchOptions(target=str(mamba))).load()
    assert list(assistant.models.suppressed) == SUPPRESSED
    assistant.close()


@pytest.mark.weights
def test_a_recurrent_draft_model_is_left_out(mamba: Path, smollm2_path: Path) -> None:
    pair = open_pair(smollm2_path, mamba, LoadOptions(n_ctx=256), CancelFlag())
    assert pair.can_draft
    assert pair.draft_model is None
    assert any("draft model" in note for note in pair.notes)
    pair.close()


@pytest.mark.weights
def test_a_context_beyond_the_training_is_cut_and_says_so(smollm2_path: Path) -> None:
    pair = open_pair(smollm2_path, None, LoadOptions(n_ctx=100_000), CancelFlag())
    assert pair.target.n_ctx == 8192
    assert any("8192" in note and "100000" in note for note in pair.notes)
    pair.close()
