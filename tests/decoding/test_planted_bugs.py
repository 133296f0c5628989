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
from tests.support.planting import Bug, plant, table
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
BUGS = table(
    """
    verify
        bonus row off by one | index 4 | _ - 1
        correction row off by one | call Verdict 1 | Verdict(row, chooser.choose(logits[row + 1], prefix))
        correction from the row before | call Verdict 1 | Verdict(row, chooser.choose(logits[max(0, row - 1)], prefix))
        the first rejected token counts as accepted | call Verdict 1 | Verdict(row + 1, token)
        position of a whole round is that of its first token | call choose | choose(chooser.candidates(logits[row], prefix), chooser.noise, len(tokens))
        position of the bonus is that of the last drafted token | call choose 2 | choose(chooser.candidates(logits[len(draft.tokens)], prefix), chooser.noise, len(prefix) - bool(draft.tokens))
        the row of another branch | call index | 0
        the row of the token that a branch stands beside | index 3 | row + 1
        what follows a branch has its parent's position | call choose 1 | choose(chooser.candidates(logits[own], [*prefix, token]), chooser.noise, len(prefix))
        a third choice counts as the second | compare 2 | token in draft.alternatives[row]
        a branch is accepted whatever the target says | compare 2 | True
    Generation._until_end
        overshoot past end of generation | if | self._looped
        only the last confirmed token is checked for end of generation | if | _ and index == len(tokens) - 1
    Generation._plan
        overshoot past the limit | call min | min(plan.draft_length, room)
    Generation.__post_init__
        the context is no limit | call min | len(self.prompt) + most
    CachedModel.truncate
        stale cache: rejected tokens stay | delete | pass
        stale cache: one rejected token stays | bound | _ + 1
    CachedModel.common_prefix
        stale cache: compared by length | compare | False
    Chooser.choose
        every position off by one | call len | _ + 1
    SharedIds.read
        a draft goes past an id that its model has not | if | True
    SharedIds.row
        a draft of ids that the target has not | return | logits
    ModelDrafter.propose
        a draft goes past its model's context | choice 1 | plan.draft_length if visible else 0
        a draft follows the token before | call Pass 1 | Pass(Role.DRAFT_MODEL, visible[:-1] or visible, rows=1, more=draft)
    AnswerConstraint._follow
        a grammar's state that a rejected draft leaves behind | delete 1 | pass
    candidates
        the grammar masks after top-k | call allowed_ids | (lambda ids: ids[allows(ids) & (row[ids] > -np.inf)])(top_ids(row, 1 if greedy else params.top_k))
    AnswerConstraint.allows
        the grammar binds the prompt, too | bound | 0
    Scheduler._deliver
        a draft goes on without the token that it proposed | call append | tokens.append(tokens[-1])
    speculative_round
        a branch goes on from the token before its parent | add | max(n_past, _ - 1)
        a branch goes on from the token that it stands beside | add | min(_ + 1, n_past + len(draft.tokens) - 1)
    Generation.advance
        a branch that was accepted is not in the text | star 1 | (verdict.next_token,)
        the first token is chosen at another position | call speculative_round | speculative_round(tokens if self._decoding_since else [*tokens[:1], *tokens], plan, self.chooser)
    """,
    *FUNCTIONS,
)
PENALTIES = table(
    """
    verify
        penalties forget the drafted prefix | call choose | choose(chooser.candidates(logits[row], tokens), chooser.noise, len(prefix))
        penalties of the bonus forget the drafted prefix | call choose 2 | choose(chooser.candidates(logits[len(draft.tokens)], tokens), chooser.noise, len(prefix))
        what follows a branch forgets it | call choose 1 | choose(chooser.candidates(logits[own], prefix), chooser.noise, len(prefix) + 1)
    """,
    *FUNCTIONS,
)


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


COMPANY_BUGS = table(
    """
    Scheduler._merged
        rows of another sequence | call zip | zip(group, reversed(answers), strict=True)
        a draft model's row of another slot | call zip | zip(group, reversed(answers) if role is Role.DRAFT_MODEL else answers, strict=True)
        rows are looked at when another pass was made | call zip | (_, self._pass(role, group[-1:]) if len(group) > 1 else None)[0]
        who fails takes the others along | call _merged | self._resumed(slot, error)
        who was cancelled while another pass ran is asked again | if | True
    Scheduler._pass
        what another slot asked for | index | group[0]
    verify
        position of another sequence | call choose 2 | choose(chooser.candidates(logits[len(draft.tokens)], prefix), chooser.noise, (last.append(len(prefix)) or last[-2]))
        noise of another seed | call choose 2 | choose(chooser.candidates(logits[len(draft.tokens)], prefix), (last.append(chooser.noise) or last[-1 - (len(last) > 2)]), len(prefix))
    Chooser._allows
        grammar of another sequence | call partial | partial((last.append(self.constraint) or last[-1 - (len(last) > 2)]).allows, prefix)
    Scheduler._update_backlog
        a prompt is merged before it is evaluated | compare 2 | missing <= most + 3
        more is given to a draft model than a pass holds | call min | request.rows + lag
    Scheduler._feed_prompt
        a prompt counts as evaluated after its first chunk | choice -1 | self._resumed(slot, NO_ROWS)
    Scheduler._passes
        more rows than a pass gives | compare | rows > model.most_rows + 1
        more tokens than a pass holds | compare 1 | False
    Scheduler._interrupted
        who is cancelled takes the others along | if 1 | True
        who was not cancelled goes on without its rows | call _update_backlog | self._resumed(slot, NO_ROWS)
    Scheduler._end_cancelled
        who is cancelled goes on | name slots | _[1:]
        a cancel of one swallows that of all | call resume | self.flag.clear()
    Scheduler.start
        a cancel that came too late is for whoever comes next | call discard | None
        a cancel that came too late is for all | call resume | None
    CachedModel.common_prefix
        a cache that another sequence of the slot left is compared by length | compare | False
    """,
    *FUNCTIONS,
)


# Vocabularies that differ. No slip in the mapping can change the text, since the target verifies: a part of the worlds has
# a draft model that says by other ids what the target says, and all that it proposes has to be accepted.

MAPPING_BUGS = table(
    """
    MappedIds.row
        a row by the draft model's own ids | return | np.resize(logits, self._row.shape)
    GrowingDraft.__call__
        a choice among the draft model's own ids | call row | row
        passes beyond the draft model's context | compare -1 | True
    MappedIds.next
        the draft model goes on with the target's id | call int | token
    MappedIds.spell
        the draft model's id is proposed | choice | (drafted,) if before is None else table.joined(before, drafted)
    TokenMap._join
        the draft model's id is proposed after another | return | (before, drafted)
    MappedIds.read
        the text is read as the target's ids | return | tokens
    GrowingDraft._append
        several tokens overshoot | compare 1 | True
    """,
    *FUNCTIONS,
)
# The worlds' texts are too short for these.
READING_BUGS = table(
    """
    MappedIds.read
        another text of the same length | compare | len(tokens) != len(self._text)
    MappedIds._return_to
        what was read of another text | compare 2 | False
    """,
    *FUNCTIONS,
)


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
