from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.drafters.model import Window
from tests.toy import CachedModel, random_table


@pytest.fixture
def model() -> CachedModel:
    return CachedModel(random_table(3, n_vocab=8, window=64), 40)


def row_after(window: Window, model: CachedModel, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Let the model see the window of a text, and return what it says of what follows."""
    row: NDArray[np.float32] = model.logits(window.open(tokens)[0], 1)[0]
    return row


def test_a_short_text_is_seen_whole(model: CachedModel) -> None:
    window = Window(model, fresh=10)
    tokens = [1, 2, 3, 4, 5]
    assert window.lag(tokens) == 5
    np.testing.assert_array_equal(row_after(window, model, tokens), model.table.row(tokens))
    assert window.lag([*tokens, 6]) == 1


def test_of_a_long_text_only_the_end_is_evaluated(model: CachedModel) -> None:
    window = Window(model, fresh=10)
    tokens = [Random(1).randrange(8) for _ in range(300)]
    assert window.lag(tokens) == 10
    np.testing.assert_array_equal(row_after(window, model, tokens), model.table.row(tokens[-10:]))
    assert model.asked[-1].evaluated == 10
    assert window.lag([*tokens, 1]) == 1


def test_the_window_grows_with_the_text_until_the_context_is_full(model: CachedModel) -> None:
    window = Window(model, fresh=10)
    tokens = [Random(2).randrange(8) for _ in range(100)]
    for more in range(60):
        tokens.append(more % 8)
        assert row_after(window, model, tokens).shape == (8,)
    longest = max(asked.n_tokens for asked in model.asked)
    assert longest == 40
    assert sum(asked.evaluated for asked in model.asked) < 100  # begun anew only now and then


def test_a_rejected_draft_costs_no_new_window(model: CachedModel) -> None:
    window = Window(model, fresh=10)
    tokens = [Random(4).randrange(8) for _ in range(100)]
    row_after(window, model, [*tokens, 1, 2, 3])
    row_after(window, model, [*tokens, 4])
    assert model.asked[-1].evaluated == 1


def test_another_text_gets_another_window(model: CachedModel) -> None:
    window, random = Window(model, fresh=10), Random(5)
    for _ in range(50):
        tokens = [random.randrange(8) for _ in range(random.randint(1, 120))]
        row = row_after(window, model, tokens)
        seen = min(len(tokens), model.asked[-1].n_tokens)
        np.testing.assert_array_equal(row, model.table.row(tokens[-seen:]))


def test_looking_at_the_lag_moves_no_window(model: CachedModel) -> None:
    window, tokens = Window(model, fresh=10), [Random(7).randrange(8) for _ in range(100)]
    row_after(window, model, tokens)
    for other in ([1] * 90, tokens[:50], [*tokens, *[1] * 40]):
        assert window.lag(other) > 1
    assert window.lag([*tokens, 1]) == 1


def test_what_the_model_was_made_to_forget_is_behind(model: CachedModel) -> None:
    window, tokens = Window(model, fresh=10), [Random(6).randrange(8) for _ in range(50)]
    row_after(window, model, tokens)
    model.truncate(5)
    assert window.lag(tokens) == 5
    model.truncate(0)
    assert window.lag(tokens) == 10
