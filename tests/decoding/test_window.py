from random import Random

import numpy as np
import pytest
from localspec.decoding.windowed_model import WindowedModel

from tests.toy import CachedModel, UncachedModel, random_table


@pytest.fixture
def inner() -> CachedModel:
    return CachedModel(random_table(3, n_vocab=8, window=64), 40)


def test_a_short_text_is_seen_whole(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    tokens = [1, 2, 3, 4, 5]
    assert model.common_prefix(tokens) == 0
    np.testing.assert_array_equal(model.logits(tokens, 1)[0], inner.table.row(tokens))
    assert model.common_prefix([*tokens, 6]) == 5


def test_of_a_long_text_only_the_end_is_evaluated(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    tokens = [Random(1).randrange(8) for _ in range(300)]
    assert model.common_prefix(tokens) == 290
    np.testing.assert_array_equal(model.logits(tokens, 1)[0], inner.table.row(tokens[-10:]))
    assert inner.asked[-1].evaluated == 10
    assert model.common_prefix([*tokens, 1]) == 300


def test_the_window_grows_with_the_text_until_the_context_is_full(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    tokens = [Random(2).randrange(8) for _ in range(100)]
    for more in range(60):
        tokens.append(more % 8)
        assert model.logits(tokens, 1).shape == (1, 8)
    longest = max(asked.n_tokens for asked in inner.asked)
    assert longest == 40
    assert sum(asked.evaluated for asked in inner.asked) < 100  # begun anew only now and then


def test_a_rejected_draft_costs_no_new_window(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    tokens = [Random(4).randrange(8) for _ in range(100)]
    model.logits([*tokens, 1, 2, 3], 1)
    model.logits([*tokens, 4], 1)
    assert inner.asked[-1].evaluated == 1


def test_another_text_gets_another_window(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    random = Random(5)
    for _ in range(50):
        tokens = [random.randrange(8) for _ in range(random.randint(1, 120))]
        row = model.logits(tokens, 1)[0]
        seen = min(len(tokens), inner.asked[-1].n_tokens)
        straight = UncachedModel(inner.table, 1000).logits(tokens[-seen:], 1)[0]
        np.testing.assert_array_equal(row, straight)


def test_truncating_forgets_what_lies_beyond(inner: CachedModel) -> None:
    model = WindowedModel(inner, n_ctx=1000, fresh=10)
    tokens = [Random(6).randrange(8) for _ in range(50)]
    model.logits(tokens, 1)
    model.truncate(45)
    assert model.common_prefix(tokens) == 45
    model.truncate(0)
    assert model.common_prefix(tokens[:5]) == 0
