"""Branches over real cells: each row is what its own text gives alone, and the memory is as if there had been none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits, Pass, Role
from localspec.errors import PassFailed
from localspec.llama.batch import Batch
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from tests.decoding.planting import plant
from tests.llama import tiny_mamba
from tests.llama.conftest import OPTIONS
from tests.llama.toy_native import ToyNative, toy_sequences
from tests.tailor import tiny_llama
from tests.toy import random_table

WIDEST = 6
"""Of the widths that are safe on any CPU."""


def branched(tokens: Sequence[int], drafted: Sequence[int], others: dict[int, int]) -> Pass:
    """Return the pass that verifies a draft and, beside some of its places, other tokens."""
    places = sorted(others, reverse=True)
    request = [*tokens, *drafted, *(others[at] for at in places)]
    branches = tuple(len(tokens) + at for at in places)
    return Pass(Role.TARGET, request, 1 + len(drafted) + len(others), branches=branches)


def test_what_is_cached_is_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(3, n_vocab=9, window=64)
    native = ToyNative(table, n_ctx=80, n_batch=16, max_rows=16, count=1)
    sequences = toy_sequences(native, 1, monkeypatch.setattr)
    request = branched([1, 2, 3], [4, 5], {0: 6, 1: 7})
    (rows,) = sequences.together([(0, request)])
    texts = ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 7], [1, 2, 3, 6])
    assert np.array_equal(rows, np.stack([table.row(text) for text in texts]))
    assert sequences.views[0].cached == (1, 2, 3, 4, 5)
    assert sequences.missing(0, Pass(Role.TARGET, [1, 2, 3, 6, 8, 1], 2)) == 3


Same = Callable[[Logits, Logits], bool]


def same_bits(row: Logits, other: Logits) -> bool:
    return bool(np.array_equal(row.view(np.uint32), other.view(np.uint32)))


def is_close(row: Logits, other: Logits) -> bool:
    """Say whether rows differ by roundings alone: wide passes of F32 weights add up in another order."""
    return bool(np.allclose(row, other, atol=1e-3))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tiny_llama.write(tmp_path_factory.mktemp("tiny") / "llama.gguf")
    model = LlamaModel(path, replace(OPTIONS, n_ctx=700, threads=1))
    yield model
    model.close()


def of_branches(model: LlamaModel, count: int = 1) -> LlamaSequences:
    return LlamaSequences(model, CancelFlag(), model.options, count, 8, branches=4)


def first_difference(
    model: LlamaModel, depth: int, rounds: int, same: Same = is_close
) -> str | None:
    """Draft at random, with branches; return what differs from passes of one token, if anything does."""
    sequences, context = of_branches(model), LlamaContext(model)
    try:
        return difference(sequences, context, depth, rounds, same) or difference(
            sequences, context, depth // 2, 3, same
        )
    finally:
        sequences.close()
        context.close()


def difference(
    sequences: LlamaSequences, context: LlamaContext, depth: int, rounds: int, same: Same
) -> str | None:
    random, view = Random(7), sequences.views[0]

    def some(count: int) -> list[int]:
        return [random.randrange(view.n_vocab) for _ in range(count)]

    text = some(depth)
    context.truncate(0)
    context.prefill(text[:-1])
    view.prefill(text[:-1])  # of a longer text, the beginning
    again = 0
    for _ in range(rounds):
        k = random.randint(1, 3)
        drafted = some(k)
        count = random.randint(1, min(k, WIDEST - 1 - k - again))
        others = dict(zip(random.sample(range(k), count), some(count), strict=True))
        try:
            (rows,) = sequences.together([(0, branched(text, drafted, others))])
        except PassFailed as error:
            return str(error)
        if view.cached != (*text, *drafted):
            return "more or less is cached than the chain"
        places = sorted(others, reverse=True)
        texts = [[*text, *drafted[:at]] for at in range(k + 1)]
        texts += [[*text, *drafted[:at], others[at]] for at in places]
        if len(rows) != len(texts):
            return "rows are missing"
        kept = rows.copy()
        for row, each in zip(kept, texts, strict=True):
            if not same(row, context.logits(each, rows=1)[0]):
                return f"a row of {len(each)} tokens"
        ended = random.choice([*places, None])
        again = int(ended is not None)
        accepted = k if ended is None else ended
        text += drafted[:accepted] if ended is None else [*drafted[:accepted], others[accepted]]
        text += some(1)
    alone = context.logits(text, rows=1)[0].copy()
    return None if same(alone, view.logits(text, rows=1)[0]) else "what follows"


@pytest.mark.parametrize("depth", [40, 250, 505])
def test_rows_are_those_of_passes_of_one_token(tiny: LlamaModel, depth: int) -> None:
    assert first_difference(tiny, depth, rounds=12) is None


@pytest.mark.weights
@pytest.mark.parametrize("depth", [250])
def test_those_of_real_weights_are_so_bit_for_bit(smollm2: LlamaModel, depth: int) -> None:
    assert first_difference(smollm2, depth, rounds=6, same=same_bits) is None


class Bug(NamedTuple):
    name: str
    function: object
    right: str
    wrong: str


BUGS = (
    Bug(
        "a branch is kept in the cache",
        NativeContext._join,
        "native.llama_memory_seq_rm(memory, at + 1, part.n_past, -1)",
        "pass",
    ),
    Bug(
        "a branch has its parent's position",
        Batch._share,
        "self._positions[at] = position",
        "self._positions[at] = position - 1",
    ),
    Bug(
        "a branch sees the token that it stands beside",
        Batch._share,
        "position - part.n_past]",
        "position - part.n_past + 1]",
    ),
    Bug(
        "a branch does not see its parent",
        Batch._share,
        "position - part.n_past]",
        "position - part.n_past - 1]",
    ),
    Bug(
        "a branch is a token of the sequence itself",
        Batch._share,
        "self._addresses[number]",
        "self._addresses[0]",
    ),
    Bug(
        "rows of branches in the order of another pass",
        LlamaSequences._part,
        "request.branches)",
        "request.branches[::-1])",
    ),
    Bug(
        "what was cut stays with the branches",
        NativeContext.remove,
        "if followed > n_past:",
        "if False:",
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(
    bug: Bug, tiny: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bug.function, bug.right, bug.wrong)
    assert first_difference(tiny, 40, rounds=12) is not None


def test_only_what_can_be_cut_and_stands_alone_has_branches(
    tiny: LlamaModel, tmp_path: Path
) -> None:
    recurrent = LlamaModel(tiny_mamba.write(tmp_path / "mamba.gguf"), tiny.options)
    for model, count, most in ((tiny, 1, 4), (tiny, 2, 0), (recurrent, 1, 0)):
        sequences = of_branches(model, count)
        assert sequences.native.most_branches == most
        sequences.close()
    recurrent.close()


def test_what_was_branched_is_saved_and_put_back_as_it_was(tiny: LlamaModel) -> None:
    sequences, context = of_branches(tiny), LlamaContext(tiny)
    view, text = sequences.views[0], list(range(50))
    sequences.together([(0, branched(text, [100, 101], {0: 200, 1: 201}))])
    copy, held = view.native.copied(view.number), view.cached
    view.truncate(0)
    view.prefill([5] * 680)
    view.truncate(0)
    assert sequences.native.put_back(view.number, copy)
    assert view.assume(held)
    (rows,) = sequences.together([(0, branched([*text, 100], [101, 102], {1: 202}))])
    texts = ([*text, 100], [*text, 100, 101], [*text, 100, 101, 102], [*text, 100, 101, 202])
    for row, each in zip(rows.copy(), texts, strict=True):
        np.testing.assert_allclose(row, context.logits(each, rows=1)[0], atol=0.01)
    view.prefill([6] * 690)
    sequences.close()
    context.close()
