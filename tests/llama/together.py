"""Several sequences of a toy context: whatever runs beside it, each says what it says alone.

The real `LlamaSequences` of target and draft model, under the scheduler.
"""

from random import Random

import pytest

from localspec.decoding.model import Role
from localspec.llama.batch import Part
from localspec.llama.sequences import LlamaSequences
from tests.decoding.company import Hooks, Shape, check_company
from tests.llama.toy_native import ToyNative, toy_sequences

_SMALL_LAG = 16
"""Of the scheduler: what a draft model may catch up with in a pass that it shares."""


def check_together(random: Random, patch: pytest.MonkeyPatch) -> None:
    """Let a random company say its lines over the real sequences."""
    patch.setattr("localspec.llama.sequences._WORTH_COPYING", random.choice((1, 2, 5)))

    def make(random: Random, role: Role, shape: Shape, hooks: Hooks) -> LlamaSequences:
        rows = min(max(shape.most_rows, shape.count), shape.n_batch)
        native = ToyNative(shape.table, shape.n_ctx, shape.n_batch, rows, shape.count)
        native.chunk = min(random.choice((1, 5, shape.n_batch)), shape.n_batch)
        sharing = random.random() < 0.8
        if random.random() < 0.3:  # a recurrent state, which is rolled back for one sequence alone
            few = random.choice((0, 1, 2, 4, 7)) if shape.count == 1 else 0
            native.n_snapshots = few if hooks.may_forget else shape.n_ctx
            native.can_truncate = not (hooks.may_forget or role is Role.TARGET)
        sequences = toy_sequences(native, shape.count, patch.setattr, sharing=sharing)
        slots = {view: slot for slot, view in enumerate(sequences.views)}

        def fails(part: Part) -> bool:
            slot = next(slots[view] for view in slots if view.number == part.sequence)
            most = hooks.poison.get(slot, shape.n_ctx)
            return part.n_past + len(part.tokens) > most

        def on_pass() -> None:
            hooks.evaluated = sum(sum(parts) for parts in native.asked)
            hooks.on_pass()

        native.flag, native.fails, native.on_pass = hooks.flag, fails, on_pass
        native.most_behind = 0 if role is Role.TARGET else _SMALL_LAG
        return sequences

    check_company(random, make)
