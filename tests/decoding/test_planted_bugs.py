"""Each of the usual bugs, planted, fails the check that drafting keeps the text.

The worlds are the same for every bug: those of seeds 0 to N_WORLDS. Unharmed code passes in all.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from localspec.decoding.generate import Generation
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.verify import verify
from numpy.typing import NDArray

from localspec.decoding import generate
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import candidates
from localspec.errors import PassFailed
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


def test_unharmed_code_passes_in_all_the_worlds_that_catch_the_bugs() -> None:
    assert first_failing_world() is None


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
        generate._until_eog,
        "return tokens[: index + 1]",
        "return tokens",
    ),
    Bug(
        "only the last confirmed token is checked for end of generation",
        generate._until_eog,
        "if token in eog:",
        "if token in eog and index == len(tokens) - 1:",
    ),
    Bug(
        "overshoot past the limit",
        Generation._planned_round,
        "room - 1",
        "room",
    ),
    Bug(
        "the context is no limit",
        Generation.__init__,
        "min(self._n_prompt + most, n_ctx)",
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
        ModelDrafter.propose,
        "if max(prefix) >= self.n_vocab:",
        "if False:",
    ),
    Bug(
        "a draft of ids that the target has not",
        ModelDrafter._chosen,
        "row = row[: self.n_vocab]",
        "pass",
    ),
    Bug(
        "a draft goes past its model's context",
        ModelDrafter.propose,
        "min(draft_length, self.n_ctx - len(prefix))",
        "draft_length",
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
        "ids = allowed_ids(row, 1 if params.temperature == 0 else params.top_k, allows)",
        "ids = top_ids(row, 1 if params.temperature == 0 else params.top_k)\n"
        "        ids = ids[allows(ids) & (row[ids] > -np.inf)]",
    ),
    Bug(
        "the grammar binds the prompt, too",
        AnswerConstraint.allows,
        "prefix[self._begin :]",
        "prefix",
    ),
)


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

    monkeypatch.setattr(generate, "verify", verify_with_fresh_noise)
    assert first_failing_world() is not None
