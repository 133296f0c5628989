"""A draft model with another vocabulary: the same text, what is proposed, and the usual bugs planted.

No slip in the mapping can change the text, since the target verifies. So in a part of the worlds the draft model says
by other ids what the target says, and all that it proposes has to be accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.growing_draft import GrowingDraft
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.noise import Noise
from localspec.decoding.scheduler import Scheduler
from localspec.errors import PassFailed
from localspec.llama.token_map import MappedIds, TokenMap
from localspec.options import SamplingParams
from tests.decoding.company import check_company
from tests.decoding.planting import plant
from tests.decoding.test_model_drafter import propose
from tests.decoding.worlds import OTHER, RENAMED, SHARED, check_same_text, random_world, seeds
from tests.toy import GREEDY, Table, UncachedModel
from tests.toy_vocabulary import ToyTokens


def world_of(seed: int, vocabulary: str) -> None:
    check_same_text(replace(random_world(Random(seed)), vocabulary=vocabulary))


def company_of(seed: int, vocabulary: str) -> None:
    check_company(Random(seed), vocabulary=vocabulary)


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(480, parts=8), ids=str)
def test_another_vocabulary_changes_neither_text_nor_stop_reason(some: range) -> None:
    for seed in some:
        for vocabulary in (RENAMED, OTHER):
            world_of(seed, vocabulary)


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(480, parts=8), ids=str)
def test_whatever_runs_beside_it_each_says_what_it_says_alone(some: range) -> None:
    for seed in some:
        for vocabulary in (RENAMED, OTHER):
            company_of(seed, vocabulary)


# What is proposed. The target writes `(self ba`, as [(self][ b][a]; the draft model as [(][self][ ba].

TARGET = ToyTokens([b"", b"a", b"b", b" ", b"(", b"self", b"(self", b" b"], {0: "<end>"}, eog=[0])
DRAFT = ToyTokens([b"self", b"(", b"b", b"a", b" ", b" ba", b""], {6: "<end>"}, eog=[6])
TEXT, READ = [6, 7, 1] * 4, [1, 0, 5] * 4


@dataclass(frozen=True, slots=True, eq=False)
class Recites(Table):
    """Knows a text by heart, whatever comes before; then it ends."""

    text: Sequence[int] = ()

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(self.n_vocab, dtype=np.float32)
        row[[*self.text, 6][len(context)]] = 20
        return row


def reciting(text: Sequence[int] = READ, n_ctx: int = 40) -> UncachedModel:
    return UncachedModel(Recites(np.zeros((1, 7), dtype=np.float32), 40, text), n_ctx)


def drafter_of(model: UncachedModel) -> ModelDrafter:
    return ModelDrafter(model, TokenMap(TARGET, DRAFT).spelling(), TARGET.eog)


@pytest.mark.parametrize(
    ("said", "length", "proposed"),
    [
        (1, 1, (7,)),
        (1, 2, (7, 1)),
        (1, 3, (7, 1, 4)),  # nobody asks whether it goes on
        (1, 4, (7, 1, 6, 7)),
        (3, 2, (6, 7)),
        (6, 5, (6, 7, 1, 6, 7)),
        (9, 9, (6, 7, 1, 0)),
    ],
)
def test_what_is_proposed_is_written_as_the_target_writes_it(
    said: int, length: int, proposed: tuple[int, ...]
) -> None:
    model = reciting()
    draft = propose(drafter_of(model), model, TEXT[:said], length, GREEDY)
    assert draft.tokens == proposed
    assert {len(draft.gaps), len(draft.confidences), len(draft.alternatives)} == {len(proposed)}
    assert all(0 < each <= 1 for each in draft.confidences)


@pytest.mark.parametrize(("n_ctx", "proposed"), [(6, ()), (7, (4,)), (8, (6,)), (9, (6, 7, 1))])
def test_the_room_is_that_of_the_draft_models_own_tokens(
    n_ctx: int, proposed: tuple[int, ...]
) -> None:
    model = reciting(n_ctx=n_ctx)
    drafter = ModelDrafter(model, TokenMap(TARGET, DRAFT).spelling(), TARGET.eog, fresh=6)
    model.n_ctx = 40  # only what is asked for is looked at
    drafter._window._fresh = 6
    assert propose(drafter, model, TEXT[:6], 9, GREEDY).tokens == proposed
    assert max([each.n_tokens for each in model.asked], default=0) <= n_ctx


def test_what_a_constraint_forbids_is_not_written_in_place_of_what_it_allows() -> None:
    class Without:
        def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
            return np.asarray(ids != 6)

        def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
            return ()

    model, chooser = reciting(), Chooser(SamplingParams(temperature=0), Noise(0), Without())
    assert propose(drafter_of(model), model, TEXT[:3], 9, chooser).tokens == (4,)


def first_failing(check: Callable[[int, str], None], vocabularies: Sequence[str]) -> int | None:
    for seed in range(600):
        for vocabulary in vocabularies:
            try:
                check(seed, vocabulary)
            except (AssertionError, PassFailed, KeyError, IndexError, ValueError):
                return seed
    return None


BUGS = {
    "a row by the draft model's own ids": (
        MappedIds.row,
        "return self._row",
        "return np.resize(logits, self._row.shape)",
    ),
    "a choice among the draft model's own ids": (
        GrowingDraft._chosen,
        "self.spelling.row(row)",
        "row",
    ),
    "the draft model goes on with the target's id": (
        MappedIds.next,
        "int(ids[np.argmax(logits[ids])])",
        "token",
    ),
    "the draft model's id is proposed": (
        MappedIds.spell,
        "table.alone[drafted]",
        "(drafted,)",
    ),
    "the draft model's id is proposed after another": (
        TokenMap._join,
        "apart = (before, *self.alone[drafted])",
        "return (before, drafted)",
    ),
    "the text is read as the target's ids": (
        MappedIds.read,
        "return self._all",
        "return tokens",
    ),
    "what was read of another text": (
        MappedIds._return_to,
        "self._ends[-1][0] >= same",
        "False",
    ),
    "several tokens overshoot": (
        GrowingDraft._append,
        "len(self.prefix) < self.end",
        "True",
    ),
    "passes beyond the draft model's context": (
        GrowingDraft.__call__,
        "self.passes < self.most_passes",
        "True",
    ),
    "another text of the same length": (
        MappedIds.read,
        "if tokens != self._text",
        "if len(tokens) != len(self._text)",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, right, wrong = BUGS[name]
    plant(monkeypatch, function, right, wrong, names={"np": np})
    assert first_failing(world_of, (RENAMED, OTHER)) is not None


@pytest.mark.parametrize("vocabulary", [SHARED, RENAMED])
def test_a_draft_models_row_of_another_slot_is_caught_by_a_company(
    vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(
        monkeypatch,
        Scheduler._merged,
        "zip(group, answers, strict=True)",
        "zip(group, answers[1:] + answers[:1] if role is Role.DRAFT_MODEL else answers, strict=True)",
    )
    assert first_failing(company_of, (vocabulary,)) is not None
