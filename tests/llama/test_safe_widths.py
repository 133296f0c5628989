"""Safe widths: in a world whose faults are planted, and on real weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import _compared, _Work, differences_at, safe_widths
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions
from tests.llama.tiny_mamba import write

pytestmark = pytest.mark.slow

TOKENS = list(range(400))
DEPTH = 20
WIDTHS = range(2, 17)


@dataclass(slots=True)
class Rounding:
    """A model whose rows, and the rows after it, are off by the width of a pass as planted, from a last position on."""

    rows_off: dict[int, float] = field(default_factory=dict)
    memory_off: dict[int, float] = field(default_factory=dict)
    off_from: int = 0
    n_vocab: int = 7
    n_ctx: int = 400
    cells: list[tuple[int, float]] = field(default_factory=list)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        pairs = zip(self.cells, tokens, strict=False)
        return next((i for i, (cell, t) in enumerate(pairs) if cell[0] != t), len(self.cells))

    def prefill(self, tokens: Sequence[int]) -> int:
        keep = self.common_prefix(tokens)
        if keep < len(tokens):
            self.truncate(keep)
            self.cells += [(token, 0.0) for token in tokens[keep:]]
        return len(tokens) - keep

    def truncate(self, n_past: int) -> None:
        del self.cells[n_past:]

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        keep = min(self.common_prefix(tokens), len(tokens) - rows)
        self.truncate(keep)
        width = len(tokens) - keep
        inherited = sum(off for _, off in self.cells)
        there = len(tokens) > self.off_from
        off = self.rows_off.get(width, 0.0) if there else 0.0
        left = self.memory_off.get(width, 0.0) if there else 0.0
        self.cells += [(token, left) for token in tokens[keep:]]
        base = np.array(tokens[-rows:], dtype=np.float32)[:, None] / 8
        return np.asarray(np.tile(base, self.n_vocab) + off + inherited, dtype=np.float32)


@pytest.mark.parametrize(
    ("model", "differences"),
    [
        (Rounding(), {}),
        (Rounding(rows_off={7: 0.25, 12: 0.5}), {7: 0.25, 12: 0.5}),
        (Rounding(memory_off={5: 0.125}), {5: 0.625}),
        (Rounding(rows_off={3: 2.0**-21}), {3: 2.0**-21}),
    ],
    ids=["none", "rows", "only keys and values that are left", "a single bit"],
)
def test_widths_that_differ_and_by_how_much(model: Rounding, differences: dict[int, float]) -> None:
    assert differences_at(model, TOKENS, DEPTH, WIDTHS) == pytest.approx(differences)


def test_differences_are_seen_to_the_bit_and_behind_boundaries() -> None:
    @dataclass(slots=True)
    class Odd(Rounding):
        odd: float = 0.0

        def logits(self, tokens: Sequence[int], rows: int) -> Logits:
            row = np.zeros((rows, self.n_vocab), dtype=np.float32)
            row[0, 3] = self.odd if rows == 2 else 0
            return row

    assert differences_at(Odd(odd=-0.0), TOKENS, DEPTH, WIDTHS) == {2: 0.0}
    assert differences_at(Odd(odd=np.nan), TOKENS, DEPTH, WIDTHS) == {2: np.inf}
    model = Rounding(rows_off={4: 1.0, 9: 0.25}, off_from=256)
    assert differences_at(model, TOKENS, 200, WIDTHS) == {}
    for depth in (255, 300):
        assert differences_at(model, TOKENS, depth, WIDTHS) == {4: 1.0, 9: 0.25}
    safe = _compared(model, TOKENS, (120, 255), lambda *_: None)
    assert safe.differences == {4: 1.0, 9: 0.25}
    assert safe.widths == tuple(w for w in range(1, 17) if w not in {4, 9})


def test_a_width_that_is_unsafe_is_not_tried_again_and_progress_is_by_width() -> None:
    @dataclass(slots=True)
    class Growing(Rounding):
        def logits(self, tokens: Sequence[int], rows: int) -> Logits:
            self.rows_off = {6: len(tokens) / 64}
            return Rounding.logits(self, tokens, rows)

    shares: list[float] = []
    safe = _compared(Growing(), TOKENS, (120, 255, 300), _Work(shares.append, 90))
    assert safe.differences == {6: 126 / 64}
    # Of 15 widths at three depths, one is left out at two.
    assert (shares[0], shares[-1], len(shares)) == (0, 1, 45)
    assert shares == sorted(shares)
    # While it is not known whether two tokens are exact, the comparison that is needed if not counts, too.
    assert shares[15] == pytest.approx(31 / (3 * 31 + 90))
    assert shares[16] == pytest.approx(48 / (3 * 31 - 2))
    nothing = Rounding(rows_off=dict.fromkeys(WIDTHS, 1.0))
    work = _Work(shares.append, 90)
    assert _compared(nothing, TOKENS, (120, 300), work).widths == (1,)
    assert shares[-1] == pytest.approx(31 / (31 + 90))
    work.begin()
    work(45, 45, True)
    assert shares[-1] == pytest.approx((31 + 45) / (31 + 90))
    assert len(nothing.cells) < 300, "the other depths are not looked at"


@pytest.mark.weights
def test_exact_safe_widths(smollm2: LlamaModel, context: LlamaContext, tokens: list[int]) -> None:
    options = replace(smollm2.options, threads=1)
    safe = safe_widths(smollm2, options, depths=(250, 300))
    assert safe.widths[:4] == (1, 2, 3, 4)
    assert set(safe.widths) | set(safe.differences) == set(range(1, 17))
    assert all(gap > 0 for gap in safe.differences.values())
    options = replace(options, flash_attention=False, kv_type="f16")
    safe = safe_widths(smollm2, options, depths=(300,))
    assert safe.widths == (1,)
    assert all(0 < gap < 10 for gap in safe.differences.values())
    options, cancel = replace(smollm2.options, threads=1), CancelFlag()
    row = context.logits(tokens, rows=1)
    before = row.copy()
    safe_widths(smollm2, options, depths=(8,))
    cancel.set()
    with pytest.raises(Cancelled):
        safe_widths(smollm2, options, cancel, depths=(8,))
    assert context.common_prefix(tokens) == context.n_cached == len(tokens)
    np.testing.assert_array_equal(row, before)


def test_of_a_recurrent_model_only_single_tokens_are_safe(tmp_path: Path) -> None:
    model = LlamaModel(write(tmp_path / "mamba.gguf"), LoadOptions(threads=1))
    assert safe_widths(model, model.options, depths=(8,)).widths == (1,)
    model.close()
