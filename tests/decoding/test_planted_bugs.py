"""Each of the usual bugs, planted, fails the check that every sequence says what it says alone.

The worlds are the same for every bug, and among those of `test_same_text`: unharmed code passes in all.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import speculative
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.generation import Generation, _until_eog
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import candidates
from localspec.decoding.scheduler import Scheduler
from localspec.decoding.speculative import speculative_round, verify
from localspec.errors import PassFailed
from tests.decoding.company import check_company
from tests.decoding.planting import plant
from tests.decoding.worlds import check_same_text, random_world
from tests.toy import CachedModel

N_WORLDS = 300


def first_failing_world(without_constraint: bool = False) -> int | None:
    """Return the seed of the first world in which drafting changes the text."""
    for seed in range(N_WORLDS):
        world = random_world(Random(seed))
        if without_constraint and world.constraint_salt is not None:
            continue
        try:
            check_same_text(world)
        except (AssertionError, PassFailed):
            return seed
    return None


def first_failing_company(most: int = 8 * N_WORLDS) -> int | None:
    """Return the seed of the first company in which a neighbour is harmed, or the scheduler is."""
    for seed in range(most):
        try:
            check_company(Random(seed))
        except (AssertionError, PassFailed, KeyError, IndexError, ValueError):
            return seed
    return None


class Bug(NamedTuple):
    name: str
    function: object
    right: str
    wrong: str
    without_constraint: bool = False  # a constraint would forget the prefix, too


BUGS = (
    Bug(
        "bonus row off by one",
        verify,
        "logits[len(draft.tokens)]",
        "logits[len(draft.tokens) - 1]",
    ),
    Bug(
        "correction row off by one",
        verify,
        "return Verdict(row, token)",
        "return Verdict(row, chooser.choose(logits[row + 1], prefix))",
    ),
    Bug(
        "correction from the row before",
        verify,
        "return Verdict(row, token)",
        "return Verdict(row, chooser.choose(logits[max(0, row - 1)], prefix))",
    ),
    Bug(
        "the first rejected token counts as accepted",
        verify,
        "return Verdict(row, token)",
        "return Verdict(row + 1, token)",
    ),
    Bug(
        "overshoot past end of generation",
        _until_eog,
        "return tokens[: index + 1]",
        "return tokens",
    ),
    Bug(
        "only the last confirmed token is checked for end of generation",
        _until_eog,
        "if token in eog:",
        "if token in eog and index == len(tokens) - 1:",
    ),
    Bug(
        "overshoot past the limit",
        Generation._next_round,
        "room - 1",
        "room",
    ),
    Bug(
        "the context is no limit",
        Generation.__init__,
        "min(self._n_prompt + most, target.n_ctx)",
        "self._n_prompt + most",
    ),
    Bug(
        "stale cache: rejected tokens stay",
        CachedModel.truncate,
        "del self.cells[n_past:]",
        "pass",
    ),
    Bug(
        "stale cache: one rejected token stays",
        CachedModel.truncate,
        "self.cells[n_past:]",
        "self.cells[n_past + 1:]",
    ),
    Bug(
        "stale cache: compared by length",
        CachedModel.common_prefix,
        "if self.cells[i] != tokens[i]",
        "if i == shorter",
    ),
    Bug(
        "position of a whole round is that of its first token",
        verify,
        "chooser.choose(logits[row], prefix)",
        "choose(chooser.candidates(logits[row], prefix), chooser.noise, len(tokens))",
    ),
    Bug(
        "position of the bonus is that of the last drafted token",
        verify,
        "chooser.choose(logits[len(draft.tokens)], prefix)",
        "choose(chooser.candidates(logits[len(draft.tokens)], prefix), chooser.noise, "
        "len(prefix) - bool(draft.tokens))",
    ),
    Bug(
        "every position off by one",
        Chooser.choose,
        "len(prefix)",
        "len(prefix) + 1",
    ),
    Bug(
        "penalties forget the drafted prefix",
        verify,
        "chooser.choose(logits[row], prefix)",
        "choose(chooser.candidates(logits[row], tokens), chooser.noise, len(prefix))",
        without_constraint=True,
    ),
    Bug(
        "penalties of the bonus forget the drafted prefix",
        verify,
        "chooser.choose(logits[len(draft.tokens)], prefix)",
        "choose(chooser.candidates(logits[len(draft.tokens)], tokens), chooser.noise, len(prefix))",
        without_constraint=True,
    ),
    Bug(
        "a draft goes past an id that its model has not",
        SharedIds.read,
        "if self._largest < self._n_vocab",
        "if True",
    ),
    Bug(
        "a draft of ids that the target has not",
        SharedIds.row,
        "logits[: self._n_vocab]",
        "logits",
    ),
    Bug(
        "a draft goes past its model's context",
        ModelDrafter.propose,
        "self._n_ctx - len(visible) if",
        "plan.draft_length if",
    ),
    Bug(
        "a grammar's state that a rejected draft leaves behind",
        AnswerConstraint._follow,
        "del self._states[-forgotten:]",
        "pass",
    ),
    Bug(
        "the grammar masks after top-k",
        candidates,
        "ids = allowed_ids(row, 1 if greedy else params.top_k, allows)",
        "ids = top_ids(row, 1 if greedy else params.top_k)\n"
        "        ids = ids[allows(ids) & (row[ids] > -np.inf)]",
    ),
    Bug(
        "the grammar binds the prompt, too",
        AnswerConstraint.allows,
        "prefix[self._begin :]",
        "prefix",
    ),
    Bug(
        "a draft follows the token before",
        ModelDrafter.propose,
        "Pass(Role.DRAFT_MODEL, visible, rows=1, more=draft)",
        "Pass(Role.DRAFT_MODEL, visible[:-1] or visible, rows=1, more=draft)",
    ),
    Bug(
        "a draft goes on without the token that it proposed",
        Scheduler._deliver,
        "tokens.append(token)",
        "tokens.append(tokens[-1])",
    ),
    Bug(
        "the row of another branch",
        verify,
        "draft.branches.index(row)",
        "0",
    ),
    Bug(
        "the row of the token that a branch stands beside",
        verify,
        "logits[own]",
        "logits[row + 1]",
    ),
    Bug(
        "what follows a branch has its parent's position",
        verify,
        "chooser.choose(logits[own], [*prefix, token])",
        "choose(chooser.candidates(logits[own], [*prefix, token]), chooser.noise, len(prefix))",
    ),
    Bug(
        "what follows a branch forgets it",
        verify,
        "chooser.choose(logits[own], [*prefix, token])",
        "choose(chooser.candidates(logits[own], prefix), chooser.noise, len(prefix) + 1)",
        without_constraint=True,
    ),
    Bug(
        "a branch goes on from the token before its parent",
        speculative_round,
        "n_past + at for",
        "max(n_past, n_past + at - 1) for",
    ),
    Bug(
        "a branch goes on from the token that it stands beside",
        speculative_round,
        "n_past + at for",
        "min(n_past + at + 1, n_past + len(draft.tokens) - 1) for",
    ),
    Bug(
        "a branch that was accepted is not in the text",
        Generation._next_round,
        "*verdict.choices",
        "verdict.next_token",
    ),
    Bug(
        "a third choice counts as the second",
        verify,
        "token == draft.alternatives[row][0]",
        "token in draft.alternatives[row]",
    ),
    Bug(
        "a branch is accepted whatever the target says",
        verify,
        "and token == draft.alternatives[row][0]",
        "",
    ),
    Bug(
        "the first token is chosen at another position",
        Generation._first_token,
        "self._chooser.choose(passed.logits[0], prompt)",
        "self._chooser.choose(passed.logits[0], [*prompt[:1], *prompt])",
    ),
)


@pytest.mark.first(8)
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug.function, bug.right, bug.wrong, names={"choose": choose})
    assert first_failing_world(bug.without_constraint) is not None


def test_noise_that_is_drawn_in_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: dict[int, tuple[Noise, np.random.Generator]] = {}

    def gumbel(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        fresh = (self, np.random.default_rng(self.seed % (1 << 64)))
        return streams.setdefault(id(self), fresh)[1].gumbel(size=ids.size)

    monkeypatch.setattr(Noise, "gumbel", gumbel)
    assert first_failing_world() is not None


def test_noise_that_depends_on_the_draft_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the target's own, drawn once per round, is the usual way to get this wrong."""
    rounds = 0

    def verify_with_fresh_noise(
        tokens: Sequence[int], draft: object, logits: object, chooser: Chooser
    ) -> object:
        nonlocal rounds
        rounds += 1
        chooser = Chooser(chooser.params, Noise(chooser.noise.seed + rounds), chooser.constraint)
        return verify(tokens, draft, logits, chooser)  # type: ignore[arg-type]

    monkeypatch.setattr(speculative, "verify", verify_with_fresh_noise)
    assert first_failing_world() is not None


COMPANY_BUGS = (
    Bug(
        "rows of another sequence",
        Scheduler._merged,
        "zip(group, answers, strict=True)",
        "zip(group, reversed(answers), strict=True)",
    ),
    Bug(
        "a draft model's row of another slot",
        Scheduler._merged,
        "zip(group, answers, strict=True)",
        "zip(group, reversed(answers) if role is Role.DRAFT_MODEL else answers, strict=True)",
    ),
    Bug(
        "what another slot asked for",
        Scheduler._pass,
        "requests = [(slot, self._running[slot].request) for slot in group]",
        "requests = [(slot, self._running[group[0]].request) for slot in group]",
    ),
    Bug(
        "rows are looked at when another pass was made",
        Scheduler._merged,
        "pairs = zip(group, answers, strict=True)",
        "pairs = zip(group, answers, strict=True); "
        "self._pass(role, group[-1:]) if len(group) > 1 else None",
    ),
    Bug(
        "position of another sequence",
        verify,
        "chooser.choose(logits[len(draft.tokens)], prefix)",
        "choose(chooser.candidates(logits[len(draft.tokens)], prefix), chooser.noise, "
        "(last.append(len(prefix)) or last[-2]))",
    ),
    Bug(
        "noise of another seed",
        verify,
        "chooser.choose(logits[len(draft.tokens)], prefix)",
        "choose(chooser.candidates(logits[len(draft.tokens)], prefix), "
        "(noises.append(chooser.noise) or noises[-2 if len(noises) > 1 else -1]), len(prefix))",
    ),
    Bug(
        "grammar of another sequence",
        Chooser._allows,
        "self.constraint.allows",
        "(rules.append(self.constraint) or rules[-2 if len(rules) > 1 else -1]).allows",
    ),
    Bug(
        "a prompt is merged before it is evaluated",
        Scheduler._update_backlog,
        "missing <= most",
        "missing <= most + 3",
    ),
    Bug(
        "more is given to a draft model than a pass holds",
        Scheduler._update_backlog,
        "min(request.rows + lag, model.n_batch)",
        "request.rows + lag",
    ),
    Bug(
        "a prompt counts as evaluated after its first chunk",
        Scheduler._feed_prompt,
        "return self._resumed(slot, NO_ROWS) if left == count else []",
        "return self._resumed(slot, NO_ROWS)",
    ),
    Bug(
        "more rows than a pass gives",
        Scheduler._passes,
        "rows > model.most_rows",
        "rows > model.most_rows + 1",
    ),
    Bug(
        "more tokens than a pass holds",
        Scheduler._passes,
        "tokens > model.n_batch",
        "False",
    ),
    Bug(
        "who fails takes the others along",
        Scheduler._merged,
        "for slot in group for ended in self._merged(role, [slot])",
        "for slot in group for ended in self._resumed(slot, error)",
    ),
    Bug(
        "who is cancelled takes the others along",
        Scheduler._interrupted,
        "if self._cancel.stops_all or not chosen:",
        "if True:",
    ),
    Bug(
        "who was not cancelled goes on without its rows",
        Scheduler._interrupted,
        "self._update_backlog(slot)",
        "self._resumed(slot, NO_ROWS)",
    ),
    Bug(
        "who was cancelled while another pass ran is asked again",
        Scheduler._merged,
        "if slot in self._running",
        "",
    ),
    Bug(
        "who is cancelled goes on",
        Scheduler._end_cancelled,
        "for slot in slots",
        "for slot in slots[1:]",
    ),
    Bug(
        "a cancel that came too late is for whoever comes next",
        Scheduler.start,
        "self._cancelled.discard(slot)",
        "pass",
    ),
    Bug(
        "a cancel that came too late is for all",
        Scheduler.start,
        "self._cancel.resume()",
        "pass",
    ),
    Bug(
        "a cancel of one swallows that of all",
        Scheduler._end_cancelled,
        "self._cancel.resume()",
        "self._cancel.clear()",
    ),
    Bug(
        "a cache that another sequence of the slot left is compared by length",
        CachedModel.common_prefix,
        "if self.cells[i] != tokens[i]",
        "if i == shorter",
    ),
)


@pytest.mark.first(6)
@pytest.mark.parametrize("bug", COMPANY_BUGS, ids=[bug.name for bug in COMPANY_BUGS])
def test_planted_bug_is_caught_by_a_company(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"choose": choose, "last": [7], "noises": [], "rules": []}
    plant(monkeypatch, bug.function, bug.right, bug.wrong, names)
    assert first_failing_company() is not None
