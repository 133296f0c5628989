"""Each of the usual bugs, planted, fails the check that every sequence says what it says alone.

The worlds are the same for every bug, and among those of `test_same_text`: unharmed code passes in all.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import speculative
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.drafters.model import GrowingDraft, ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.generation import Generation
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import candidates
from localspec.decoding.scheduler import Scheduler
from localspec.decoding.speculative import speculative_round, verify
from localspec.decoding.top import top_ids
from localspec.errors import PassFailed
from localspec.llama.token_map import MappedIds, TokenMap
from tests.decoding.company import check_company
from tests.decoding.worlds import OTHER, RENAMED, SHARED, check_same_text, random_world
from tests.support.planting import Bug, plant
from tests.toy import CachedModel

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


BONUS = "choose(chooser.candidates(logits[len(draft.tokens)], {}), {}, {})"
BUGS = (
    Bug("bonus row off by one", verify, "index", "_ - 1", 4),
    Bug(
        "correction row off by one",
        verify,
        "call Verdict",
        "Verdict(row, chooser.choose(logits[row + 1], prefix))",
        1,
    ),
    Bug(
        "correction from the row before",
        verify,
        "call Verdict",
        "Verdict(row, chooser.choose(logits[max(0, row - 1)], prefix))",
        1,
    ),
    Bug(
        "the first rejected token counts as accepted",
        verify,
        "call Verdict",
        "Verdict(row + 1, token)",
        1,
    ),
    Bug("overshoot past end of generation", Generation._until_end, "if", "self._looped"),
    Bug(
        "only the last confirmed token is checked for end of generation",
        Generation._until_end,
        "if",
        "_ and index == len(tokens) - 1",
    ),
    Bug("overshoot past the limit", Generation._plan, "call min", "min(plan.draft_length, room)"),
    Bug("the context is no limit", Generation.__post_init__, "call min", "len(self.prompt) + most"),
    Bug("stale cache: rejected tokens stay", CachedModel.truncate, "delete", "pass"),
    Bug("stale cache: one rejected token stays", CachedModel.truncate, "bound", "_ + 1"),
    Bug("stale cache: compared by length", CachedModel.common_prefix, "compare", "False"),
    Bug(
        "position of a whole round is that of its first token",
        verify,
        "call choose",
        "choose(chooser.candidates(logits[row], prefix), chooser.noise, len(tokens))",
    ),
    Bug(
        "position of the bonus is that of the last drafted token",
        verify,
        "call choose",
        BONUS.format("prefix", "chooser.noise", "len(prefix) - bool(draft.tokens)"),
        2,
    ),
    Bug("every position off by one", Chooser.choose, "call len", "_ + 1"),
    Bug("a draft goes past an id that its model has not", SharedIds.read, "if", "True"),
    Bug("a draft of ids that the target has not", SharedIds.row, "return", "logits"),
    Bug(
        "a draft goes past its model's context",
        ModelDrafter.propose,
        "choice",
        "plan.draft_length if visible else 0",
        1,
    ),
    Bug(
        "a grammar's state that a rejected draft leaves behind",
        AnswerConstraint._follow,
        "delete",
        "pass",
        1,
    ),
    Bug(
        "the grammar masks after top-k",
        candidates,
        "call allowed_ids",
        "(lambda ids: ids[allows(ids) & (row[ids] > -np.inf)])(top_ids(row, 1 if greedy else params.top_k))",
    ),
    Bug("the grammar binds the prompt, too", AnswerConstraint.allows, "bound", "0"),
    Bug(
        "a draft follows the token before",
        ModelDrafter.propose,
        "call Pass",
        "Pass(Role.DRAFT_MODEL, visible[:-1] or visible, rows=1, more=draft)",
        1,
    ),
    Bug(
        "a draft goes on without the token that it proposed",
        Scheduler._deliver,
        "call append",
        "tokens.append(tokens[-1])",
    ),
    Bug("the row of another branch", verify, "call index", "0"),
    Bug("the row of the token that a branch stands beside", verify, "index", "row + 1", 3),
    Bug(
        "what follows a branch has its parent's position",
        verify,
        "call choose",
        "choose(chooser.candidates(logits[own], [*prefix, token]), chooser.noise, len(prefix))",
        1,
    ),
    Bug(
        "a branch goes on from the token before its parent",
        speculative_round,
        "add",
        "max(n_past, _ - 1)",
    ),
    Bug(
        "a branch goes on from the token that it stands beside",
        speculative_round,
        "add",
        "min(_ + 1, n_past + len(draft.tokens) - 1)",
    ),
    Bug(
        "a branch that was accepted is not in the text",
        Generation.advance,
        "star",
        "(verdict.next_token,)",
        1,
    ),
    Bug(
        "a third choice counts as the second",
        verify,
        "compare",
        "token in draft.alternatives[row]",
        2,
    ),
    Bug("a branch is accepted whatever the target says", verify, "compare", "True", 2),
    Bug(
        "the first token is chosen at another position",
        Generation.advance,
        "call speculative_round",
        "speculative_round(tokens if self._decoding_since else [*tokens[:1], *tokens], plan, self.chooser)",
    ),
)
PENALTIES = (
    Bug(
        "penalties forget the drafted prefix",
        verify,
        "call choose",
        "choose(chooser.candidates(logits[row], tokens), chooser.noise, len(prefix))",
    ),
    Bug(
        "penalties of the bonus forget the drafted prefix",
        verify,
        "call choose",
        BONUS.format("tokens", "chooser.noise", "len(prefix)"),
        2,
    ),
    Bug(
        "what follows a branch forgets it",
        verify,
        "call choose",
        "choose(chooser.candidates(logits[own], prefix), chooser.noise, len(prefix) + 1)",
        1,
    ),
)
NAMES: dict[str, object] = {"choose": choose, "top_ids": top_ids, "np": np}


@pytest.mark.first(8)
@pytest.mark.parametrize("bug", [*BUGS, *PENALTIES], ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug, NAMES)
    check = check_without_constraint if bug in PENALTIES else check_world
    assert first_failing(check, 300) is not None


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


COMPANY_BUGS = (
    Bug(
        "rows of another sequence",
        Scheduler._merged,
        "call zip",
        "zip(group, reversed(answers), strict=True)",
    ),
    Bug(
        "a draft model's row of another slot",
        Scheduler._merged,
        "call zip",
        "zip(group, reversed(answers) if role is Role.DRAFT_MODEL else answers, strict=True)",
    ),
    Bug("what another slot asked for", Scheduler._pass, "index", "group[0]"),
    Bug(
        "rows are looked at when another pass was made",
        Scheduler._merged,
        "call zip",
        "(_, self._pass(role, group[-1:]) if len(group) > 1 else None)[0]",
    ),
    Bug(
        "position of another sequence",
        verify,
        "call choose",
        BONUS.format("prefix", "chooser.noise", "(last.append(len(prefix)) or last[-2])"),
        2,
    ),
    Bug(
        "noise of another seed",
        verify,
        "call choose",
        BONUS.format(
            "prefix", "(last.append(chooser.noise) or last[-1 - (len(last) > 2)])", "len(prefix)"
        ),
        2,
    ),
    Bug(
        "grammar of another sequence",
        Chooser._allows,
        "call partial",
        "partial((last.append(self.constraint) or last[-1 - (len(last) > 2)]).allows, prefix)",
    ),
    Bug(
        "a prompt is merged before it is evaluated",
        Scheduler._update_backlog,
        "compare",
        "missing <= most + 3",
        2,
    ),
    Bug(
        "more is given to a draft model than a pass holds",
        Scheduler._update_backlog,
        "call min",
        "request.rows + lag",
    ),
    Bug(
        "a prompt counts as evaluated after its first chunk",
        Scheduler._feed_prompt,
        "choice",
        "self._resumed(slot, NO_ROWS)",
        -1,
    ),
    Bug("more rows than a pass gives", Scheduler._passes, "compare", "rows > model.most_rows + 1"),
    Bug("more tokens than a pass holds", Scheduler._passes, "compare", "False", 1),
    Bug(
        "who fails takes the others along",
        Scheduler._merged,
        "call _merged",
        "self._resumed(slot, error)",
    ),
    Bug("who is cancelled takes the others along", Scheduler._interrupted, "if", "True", 1),
    Bug(
        "who was not cancelled goes on without its rows",
        Scheduler._interrupted,
        "call _update_backlog",
        "self._resumed(slot, NO_ROWS)",
    ),
    Bug(
        "who was cancelled while another pass ran is asked again",
        Scheduler._merged,
        "if",
        "True",
    ),
    Bug("who is cancelled goes on", Scheduler._end_cancelled, "name slots", "_[1:]"),
    Bug(
        "a cancel that came too late is for whoever comes next",
        Scheduler.start,
        "call discard",
        "None",
    ),
    Bug("a cancel that came too late is for all", Scheduler.start, "call resume", "None"),
    Bug(
        "a cancel of one swallows that of all",
        Scheduler._end_cancelled,
        "call resume",
        "self.flag.clear()",
    ),
    Bug(
        "a cache that another sequence of the slot left is compared by length",
        CachedModel.common_prefix,
        "compare",
        "False",
    ),
)


@pytest.mark.first(6)
@pytest.mark.parametrize("bug", COMPANY_BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_caught_by_a_company(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug, {**NAMES, "last": [7] if "position" in bug.name else []})
    assert first_failing(check_company, 2400) is not None


# Vocabularies that differ. No slip in the mapping can change the text, since the target verifies: a part of the worlds has
# a draft model that says by other ids what the target says, and all that it proposes has to be accepted.

MAPPING_BUGS = (
    Bug(
        "a row by the draft model's own ids",
        MappedIds.row,
        "return",
        "np.resize(logits, self._row.shape)",
    ),
    Bug("a choice among the draft model's own ids", GrowingDraft.__call__, "call row", "row"),
    Bug("the draft model goes on with the target's id", MappedIds.next, "call int", "token"),
    Bug(
        "the draft model's id is proposed",
        MappedIds.spell,
        "choice",
        "(drafted,) if before is None else table.joined(before, drafted)",
    ),
    Bug(
        "the draft model's id is proposed after another",
        TokenMap._join,
        "return",
        "(before, drafted)",
    ),
    Bug("the text is read as the target's ids", MappedIds.read, "return", "tokens"),
    Bug("what was read of another text", MappedIds._return_to, "compare", "False", 2),
    Bug("several tokens overshoot", GrowingDraft._append, "compare", "True", 1),
    Bug("passes beyond the draft model's context", GrowingDraft.__call__, "compare", "True", -1),
    Bug(
        "another text of the same length",
        MappedIds.read,
        "compare",
        "len(tokens) != len(self._text)",
    ),
)


def check_mapped(random: Random) -> None:
    world = random_world(random)
    for vocabulary in (RENAMED, OTHER):
        check_same_text(replace(world, vocabulary=vocabulary))


@pytest.mark.parametrize("bug", MAPPING_BUGS, ids=lambda bug: bug.name)
def test_planted_bug_of_a_mapping_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug, NAMES)
    assert first_failing(check_mapped, 600) is not None


@pytest.mark.parametrize("vocabulary", [SHARED, RENAMED])
def test_a_draft_models_row_of_another_slot_is_caught_by_a_company(
    vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = "answers[1:] + answers[:1] if role is Role.DRAFT_MODEL else answers"
    plant(
        monkeypatch,
        Bug("", Scheduler._merged, "call zip", f"zip(group, {rotated}, strict=True)"),
    )
    assert (
        first_failing(lambda random: check_company(random, vocabulary=vocabulary), 600) is not None
    )
