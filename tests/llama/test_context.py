"""LlamaContext on real weights: the cache, the rows, the ways to fail."""

from dataclasses import replace

import llama_cpp.llama_cpp as native
import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ContextOverflow, ModelLoadError, PassFailed
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaContext

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.weights


def test_rows_are_those_of_the_last_tokens(context: LlamaContext, tokens: list[int]) -> None:
    assert context.prefill(tokens[:40]) == 40
    assert context.prefill(tokens[:40]) == 0
    assert context.prefill(tokens[:55]) == 15
    assert context.common_prefix([*tokens[:30], 7, 7]) == 30
    assert context.prefill([*tokens[:30], 7, 7]) == 2
    context.prefill(tokens[:-4])
    wide = context.logits(tokens, rows=4).copy()
    context.truncate(len(tokens) - 4)
    for row in range(4):
        narrow = context.logits(tokens[: len(tokens) - 3 + row], rows=1)
        np.testing.assert_array_equal(narrow[0], wide[row])


@pytest.mark.parametrize("n_ctx", [2, 100])
def test_a_context_is_full_at_n_ctx_and_refuses_more(
    smollm2: LlamaModel, tokens: list[int], n_ctx: int, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(NativeContext, "decode", None)  # attention is cut without a pass
        context = LlamaContext(smollm2, options=replace(smollm2.options, n_ctx=n_ctx))
    assert context.native.can_truncate
    assert (context.n_ctx, context.n_cached) == (n_ctx, 0)
    long = (tokens * 4)[:n_ctx]
    assert context.logits(long, rows=min(4, n_ctx)).shape[0] == min(4, n_ctx)
    with pytest.raises(ContextOverflow):
        context.logits([*long, 1], rows=1)
    with pytest.raises(PassFailed, match="9 rows"):
        context.logits(tokens, rows=9)
    assert context.common_prefix(long) == context.n_cached == n_ctx
    context.close()


def test_passes_of_a_fixed_width_give_the_rows_of_their_own_tokens_and_keep_no_others(
    smollm2: LlamaModel, tokens: list[int]
) -> None:
    context, usual = LlamaContext(smollm2), LlamaContext(smollm2)
    context.native.fix_width(4)
    assert context.native.n_ctx == usual.n_ctx - 4
    for each in (context, usual):
        each.prefill(tokens[:40])
    for end, rows in ((41, 1), (44, 3), (46, 1), (50, 4), (60, 2)):
        expected = usual.logits(tokens[:end], rows=rows).copy()
        np.testing.assert_array_equal(context.logits(tokens[:end], rows=rows), expected)
        assert context.native.held(0) == context.n_cached == end
    context.close()
    usual.close()


def test_a_cancelled_pass_is_not_made_and_the_next_one_is(
    smollm2: LlamaModel, tokens: list[int], monkeypatch: Patch
) -> None:
    """In the midst of passes: `test_native_safety`."""
    cancel = CancelFlag()
    context = LlamaContext(smollm2, cancel)
    cancel.set()
    with monkeypatch.context() as patched:
        patched.setattr(native, "llama_decode", None)
        with pytest.raises(Cancelled):
            context.prefill(tokens)
    assert context.n_cached == 0
    cancel.clear()
    assert context.prefill(tokens) == len(tokens)
    context.close()


def test_what_was_closed_says_so(smollm2: LlamaModel, tokens: list[int]) -> None:
    model = LlamaModel(smollm2.path, smollm2.options)
    context, other = LlamaContext(model), LlamaContext(model)
    context.prefill(tokens)
    context.close()
    context.close()
    with pytest.raises(PassFailed, match="closed"):
        context.truncate(1)
    model.close()
    with pytest.raises(PassFailed, match="closed"):
        other.prefill([1])
    with pytest.raises(ModelLoadError, match="closed"):
        LlamaContext(model)
