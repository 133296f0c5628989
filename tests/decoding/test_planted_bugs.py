"""Each of the usual bugs, planted, fails the check that every sequence says what it says alone.

The worlds are the same for every bug, and among those of `test_same_text`: unharmed code passes in all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import speculative
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.drafters.model import GrowingDraft, ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.generation import Generation
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import candidates
from localspec.decoding.scheduler import Scheduler
from localspec.decoding.speculative import speculative_round, verify
from localspec.decoding.top import top_ids
from localspec.errors import PassFailed
from localspec.llama.token_map import MappedIds, TokenMap
from tests.decoding.company import check_company
from tests.decoding.worlds import (
    OTHER,
    RENAMED,
    check_same_text,
    random_world,
    token_map,
)
from tests.llama.test_token_map import check_reading
from tests.support.planting import Bug, plant, table_of
from tests.toy import CachedModel

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def fresh_token_maps() -> Iterator[None]:
    """Forget the worlds' token maps afterwards: they remember joins, and a planted bug makes wrong ones."""
    yield
    token_map.cache_clear()


FAILURES = (AssertionError, PassFailed, KeyError, IndexError, ValueError)


def first_failing(check: Callable[[Random], None], most: int) -> int | None:
    """Return the seed of the first world or company in which a check fails."""
    for seed in range(most):
        try:
            check(Random(seed))
        except FAILURES:
            return seed
    return None


def check_world(random: Random) -> None:
    check_same_text(random_world(random))


def check_without_constraint(random: Random) -> None:
    """A constraint would miss the prefix, too."""
    check_same_text(replace(random_world(random), constraint_salt=None))


FUNCTIONS = (
    verify, speculative_round, candidates, Generation.advance, Generation._until_end, Generation._plan,
    Generation.__post_init__, CachedModel.truncate, CachedModel.common_prefix, Chooser.choose, Chooser._allows,
    SharedIds.read, SharedIds.row, ModelDrafter.propose, GrowingDraft.__call__, GrowingDraft._append,
    AnswerConstraint.allows, AnswerConstraint._follow, Scheduler._deliver, Scheduler._merged, Scheduler._pass,
    Scheduler._passes, Scheduler._update_backlog, Scheduler._feed_prompt, Scheduler._interrupted, Scheduler.start,
    Scheduler._end_cancelled, MappedIds.row, MappedIds.next, MappedIds.spell, MappedIds.read, MappedIds._return_to,
    TokenMap._join,
)  # fmt: skip
BUGS = table_of(__file__, "worlds", *FUNCTIONS)
PENALTIES = table_of(__file__, "penalties", *FUNCTIONS)


def test_noise_that_is_drawn_in_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: dict[int, tuple[Noise, np.random.Generator]] = {}

    def gumbel(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        fresh = (self, np.random.default_rng(self.seed % (1 << 64)))
        return streams.setdefault(id(self), fresh)[1].gumbel(size=ids.size)

    monkeypatch.setattr(Noise, "gumbel", gumbel)
    assert first_failing(check_world, 300) is not None


def test_noise_that_depends_on_the_draft_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the target's own, drawn once per round, is the usual way to get this wrong."""
    rounds = count(1)

    def with_fresh_noise(tokens: object, draft: object, logits: object, chooser: Chooser) -> object:
        noise = Noise(chooser.noise.seed + next(rounds))
        return verify(tokens, draft, logits, replace(chooser, noise=noise))  # type: ignore[arg-type]

    monkeypatch.setattr(speculative, "verify", with_fresh_noise)
    assert first_failing(check_world, 300) is not None


COMPANY_BUGS = table_of(__file__, "companies", *FUNCTIONS)


# Vocabularies that differ. No slip in the mapping can change the text, since the target verifies: a part of the worlds has
# a draft model that says by other ids what the target says, and all that it proposes has to be accepted.

MAPPING_BUGS = table_of(__file__, "vocabularies", *FUNCTIONS)
# The worlds' texts are too short for these.
READING_BUGS = table_of(__file__, "reading", *FUNCTIONS)


def check_mapped(random: Random) -> None:
    world = random_world(random)
    for vocabulary in (RENAMED, OTHER):
        check_same_text(replace(world, vocabulary=vocabulary))


NEXT_SLOT = "answers[1:] + answers[:1] if role is Role.DRAFT_MODEL else answers"
ROWS_OF_ANOTHER = Bug(
    "rows of the next slot", Scheduler._merged, "call zip", f"zip(group, {NEXT_SLOT}, strict=True)"
)
CAUGHT: list[tuple[list[Bug], Callable[[Random], None], int]] = [
    (BUGS, check_world, 300),
    (PENALTIES, check_without_constraint, 300),
    (COMPANY_BUGS, check_company, 2400),
    (MAPPING_BUGS, check_mapped, 600),
    (READING_BUGS, check_reading, 60),
    ([ROWS_OF_ANOTHER], check_company, 600),
    ([ROWS_OF_ANOTHER], partial(check_company, vocabulary=RENAMED), 600),
]


@pytest.mark.parametrize(
    ("bug", "check", "most"),
    [pytest.param(bug, check, most, id=bug.name) for bugs, check, most in CAUGHT for bug in bugs],
)
def test_planted_bug_is_caught(
    bug: Bug, check: Callable[[Random], None], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = [7] if "position" in bug.name else []
    names = {"choose": choose, "top_ids": top_ids, "np": np, "last": last}
    plant(monkeypatch, bug, names)
    assert first_failing(check, most) is not None
