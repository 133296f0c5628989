"""States cut by tokens and put together again: to the bit, whatever layers a model has, and in a context of other sequences."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.llama.cells import UnknownFormError, cells_of, joined, tail_of_state
from localspec.llama.model import LlamaModel
from localspec.llama.sequences import LlamaSequences
from localspec.options import LoadOptions
from tests.llama import tiny_mamba, tiny_models

OPTIONS = LoadOptions(n_ctx=512, threads=1, max_rows=8)
WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": tiny_models.write_llama,
    "windowed": tiny_models.write_windowed,
    "gemma4": tiny_models.write_gemma4,
    "qwen35": tiny_models.write_qwen35,
    "lfm2": tiny_models.write_lfm2,
    "mamba": tiny_mamba.write,
}
HOW = {
    "usual": OPTIONS,
    "exact": OPTIONS.exact(),
    "quantised": replace(OPTIONS, kv_type="q8_0", flash_attention=True),
}
COUNTS = {"one": (1, 0), "three": (3, 0), "branches": (1, 2)}


def check_goes_on(
    model: LlamaModel, options: LoadOptions, counts: tuple[int, int], tokens: list[int]
) -> bool:
    """Read tokens, put them into another context cut in three, and assert that both go on alike; return whether there is a tail."""
    before = LlamaSequences(model, CancelFlag(), options, counts[0], 8, branches=counts[1])
    after = LlamaSequences(model, CancelFlag(), options, 3, 8)
    try:
        old, new, count = before.views[0], after.views[1], len(tokens)
        old.prefill(tokens[: count // 2])
        old.prefill(tokens)
        state = before.native.copied(old.number)
        cells = cells_of(state, count)
        tail = tail_of_state(before.native.copied(old.number, tail=True))
        if cells.layout.has_tail:
            assert tail == cells.tail
        else:
            count -= 30  # nothing but cells: a part of them will do
            old.truncate(count)
        ends = [0, 128, 256, len(tokens)]
        stretches = [
            (memoryview(b"".join(cells.stretch(start, end))), end - start)
            for start, end in itertools.pairwise(ends)
        ]
        again = joined(cells.layout, stretches, count, after.native.streams, cells.tail)
        new.prefill(tokens[5:50])
        new.truncate(0)
        assert after.native.put_back(new.number, again)
        assert new.assume(tokens[:count], 0, count if cells.layout.has_tail else 0)
        wanted = Pass(Role.TARGET, [*tokens[:count], 5, 6, 7], 3)
        expected = before.together([(0, wanted)])[0].copy()
        np.testing.assert_array_equal(after.together([(1, wanted)])[0], expected)
        if cells.layout.has_tail:
            assert new.common_prefix(tokens[: count - 20]) == 0, "it cannot be cut there"
        if cells.layout.keys:
            for wrong in (len(tokens) - 1, len(tokens) + 1):
                assert cells_of(state, wrong).layout.keys == ()
            with pytest.raises(UnknownFormError):
                joined(cells.layout, stretches[1:], count, 1, cells.tail)
        return cells.layout.has_tail
    finally:
        before.close()
        after.close()


CASES = {
    f"{name}-{how}": (name, options)
    for name in WRITERS
    for how, options in HOW.items()
    if name in {"llama", "windowed"} or options.kv_type != "q8_0"  # heads too small for blocks
}


@pytest.mark.slow
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize(("name", "options"), CASES.values(), ids=CASES)
def test_what_is_put_together_goes_on_to_the_bit(
    name: str, options: LoadOptions, counts: tuple[int, int], tmp_path: Path
) -> None:
    model = LlamaModel(WRITERS[name](tmp_path / "model.gguf"), options)
    random = Random(1)
    tokens = [random.randrange(3, 250) for _ in range(300)]
    has_tail = check_goes_on(model, options, counts, tokens)
    model.close()
    assert has_tail is (name != "llama")


@pytest.mark.weights
def test_so_it_does_of_real_weights(smollm2: LlamaModel, tokens: list[int]) -> None:
    assert not check_goes_on(smollm2, smollm2.options, (1, 0), (tokens * 4)[:300])
