"""A plain copy reads for the sequences of repacked weights: with their own bits, and they go on from what it has evaluated."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass, Role
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.prompt_reader import PromptReader
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.options import LoadOptions
from tests.support.mixtures import mixture

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8)
TOKENS = [(at * 31) % 250 for at in range(600)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of Q4_K, which is repacked."""
    return mixture(tmp_path_factory.mktemp("read"), "llama", 2, "Q4_K_M")


@pytest.fixture
def models(path: Path) -> Iterator[tuple[LlamaModel, LlamaModel]]:
    both = LlamaModel(path, OPTIONS), LlamaModel(path, OPTIONS, plain=True)
    yield both
    for each in both:
        each.close()


def made(
    models: tuple[LlamaModel, LlamaModel], count: int, *, least: int = 1, far: int = 10_000
) -> LlamaSequences:
    """Return sequences whose prompts are read by the plain copy: whole ones, and so many tokens behind others."""
    repacked, plain = models
    options = replace(OPTIONS, flash_attention=True) if count > 1 else OPTIONS
    sequences = LlamaSequences(repacked, CancelFlag(), options, count, 8)
    sequences.reader = PromptReader(
        lambda: plain,
        lambda depth, tokens: tokens >= (far if depth else least),
        CancelFlag(),
        options.plain(),
        sequences.native,
        OPTIONS.n_ctx or 0,
        keeps=count > 1,
    )
    return sequences


def read(sequences: LlamaSequences, slot: int, tokens: list[int], rows: int = 1) -> Logits:
    """Evaluate a prompt as the scheduler does, and return its rows."""
    request = Pass(Role.TARGET, tokens, rows)
    view = sequences.views[slot]
    while len(tokens) - view.common_prefix(tokens[:-rows]) > sequences.chunk(slot):
        left = len(tokens) - view.common_prefix(tokens[:-rows])
        sequences.evaluate(slot, request, min(sequences.chunk(slot), left - rows))
    return sequences.together([(slot, request)])[0].copy()


def alone(
    model: LlamaModel, options: LoadOptions, tokens: list[int]
) -> tuple[Logits, LlamaContext]:
    """Return the row behind a prompt, of which the first chunk is no wider than in a context of repacked weights."""
    context = LlamaContext(model, options=options)
    context.prefill(tokens[: OPTIONS.chunk(on_gpu=False)])
    return context.logits(tokens, 1).copy(), context


@pytest.mark.parametrize("count", [1, 3])
def test_a_prompt_has_the_bits_of_the_plain_copy_and_what_follows_goes_on_from_them(
    models: tuple[LlamaModel, LlamaModel], count: int
) -> None:
    sequences = made(models, count)
    options = sequences.reader._options if sequences.reader else OPTIONS
    first = read(sequences, count - 1, TOKENS)
    plain, context = alone(models[1], options, TOKENS)
    assert np.array_equal(first, plain)
    repacked, other = alone(models[0], options, TOKENS)
    assert not np.array_equal(first, repacked), "the two have kernels of their own"
    # What decodes next holds keys and values as the plain copy left them.
    assert other.native.put_back(0, context.native.copied(0))
    assert other.assume(TOKENS)
    for end in (601, 602, 603):
        tokens = [*TOKENS, 7, 9, 11][:end]
        row = sequences.together([(count - 1, Pass(Role.TARGET, tokens, 1))])[0].copy()
        expected = other.logits(tokens, 1)
        # Several sequences have a cache of more cells, which attention adds up in another order.
        assert (
            np.array_equal(row, expected) if count == 1 else np.allclose(row, expected, atol=0.05)
        )
    assert sequences.views[count - 1].n_cached == 603
    again = read(made(models, count), 0, TOKENS)
    assert np.array_equal(again, first), "one prompt has one row, in whichever sequence"


@pytest.mark.parametrize(("count", "reads"), [(1, True), (1, False), (3, True), (3, False)])
def test_a_prompt_that_is_asked_again_goes_on_with_the_same_bits(
    models: tuple[LlamaModel, LlamaModel], count: int, *, reads: bool
) -> None:
    sequences = made(models, count)
    if not reads:
        sequences.reader = None
    prompt, answer = TOKENS[:300], [7, 8, 9]
    asked = [prompt, *([*prompt, *answer[:each]] for each in (1, 2, 3))]
    first = [read(sequences, 0, each) for each in asked]
    for slot in (0, count - 1):
        again = [read(sequences, slot, each) for each in asked]
        assert all(map(np.array_equal, again, first)), slot
    read(sequences, 0, prompt[:200])
    assert sequences.views[0].prompt_row is None or sequences.views[0].prompt_row[0] == 200


def test_only_what_is_worth_it_goes_there_and_all_of_it_comes_back(
    models: tuple[LlamaModel, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = list[int]()
    inside = PromptReader.hand_over

    def counted(*arguments: object) -> bool:
        moved.append(arguments[-1])  # type: ignore[arg-type]
        return inside(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(
        "localspec.llama.prompt_reader.PromptReader.hand_over", staticmethod(counted)
    )
    sequences = made(models, 1, least=200, far=300)
    view = sequences.views[0]
    read(sequences, 0, TOKENS[:150])
    assert (moved, view.native is sequences.native) == ([], True)
    read(sequences, 0, TOKENS[:400])  # 250 behind 150
    assert moved == []
    read(sequences, 0, [*TOKENS[:100], *TOKENS[:301]])  # 301 behind 100, which go there
    assert moved == [100]
    assert view.native is not sequences.native
    sequences.together([(0, Pass(Role.TARGET, [*TOKENS[:100], *TOKENS[:301], 5], 1))])
    assert (moved, view.native is sequences.native) == ([100, 401], True)
    assert sequences.reader is not None
    assert sequences.reader.native is None, "its context is gone with the prompt"


def test_a_cancelled_prompt_goes_on_where_it_was_and_a_lack_of_memory_costs_time_alone(
    models: tuple[LlamaModel, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = made(models, 1)
    view, request = sequences.views[0], Pass(Role.TARGET, TOKENS, 1)
    sequences.evaluate(0, request, 128)
    assert sequences.reader is not None
    there = sequences.reader._cancel
    there.set()
    with pytest.raises(Cancelled):
        sequences.evaluate(0, request, 128)
    there.clear()
    assert view.common_prefix(TOKENS) == 128
    first = read(sequences, 0, TOKENS)
    assert np.array_equal(first, read(made(models, 1), 0, TOKENS))
    monkeypatch.setattr("localspec.llama.prompt_reader.PromptReader.hand_over", lambda *_: False)
    row = sequences.together([(0, Pass(Role.TARGET, [*TOKENS, 3], 1))])[0].copy()
    expected, _ = alone(models[0], OPTIONS, TOKENS)
    assert view.native is sequences.native
    again = made(models, 1, least=10_000)
    read(again, 0, TOKENS)
    last = again.together([(0, Pass(Role.TARGET, [*TOKENS, 3], 1))])[0]
    assert np.allclose(row, last, atol=0.05), "evaluated again, in other chunks"
    monkeypatch.setattr("localspec.llama.prompt_reader.NativeContext", _no_memory)
    small = made(models, 1)
    assert np.array_equal(read(small, 0, TOKENS), expected), "read by the repacked weights"


def _no_memory(*_: object, **_more: object) -> None:
    from localspec.errors import ModelLoadError  # noqa: PLC0415

    raise ModelLoadError("no memory")


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("length", [1, 90, 128, 300, 600])
def test_a_cold_start_gives_what_a_warm_one_gives(
    models: tuple[LlamaModel, LlamaModel],
    length: int,
    memory: bool,
) -> None:
    waited = list[int]()

    def behind() -> NativeContext | None:
        waited.append(cold.views[0].n_cached)
        return NativeContext(models[0], CancelFlag(), OPTIONS, 8) if memory else None

    def starting() -> LlamaSequences:
        """Return sequences whose repacked weights are not there yet."""
        cold = LlamaSequences(models[1], CancelFlag(), replace(OPTIONS, n_ctx=256), 1, 8)
        cold.reader, cold.behind = made(models, 1).reader, behind
        cold.views[0].n_ctx = OPTIONS.n_ctx or 0
        return cold

    warm, cold, prompt = made(models, 1), starting(), TOKENS[:length]
    assert np.array_equal(read(cold, 0, prompt), read(warm, 0, prompt))
    assert waited == [], "the first row needs no more than the plain copy"
    for more in ([7], [7, 9], [7, 9, 11, 13]):
        request = Pass(Role.TARGET, [*prompt, *more], 1 + len(more) // 4)
        cold.compact([0])
        rows = [each.together([(0, request)])[0].copy() for each in (cold, warm)]
        assert np.array_equal(rows[0], rows[1]) or not memory
    assert (waited, cold.behind) == ([length], None)
    # A state is put where the repacked weights go on from it, and they are waited for.
    state, cold = warm.native.copied(0), starting()
    room = cold.views[0].room()
    assert waited == [length, 0]
    assert room.put_back(0, state)
    assert cold.views[0].assume([*prompt, 7, 9, 11, 13])
    request = Pass(Role.TARGET, [*prompt, 7, 9, 11, 13, 2], 1)
    rows = [each.together([(0, request)])[0].copy() for each in (cold, warm)]
    assert np.array_equal(rows[0], rows[1]) or not memory
