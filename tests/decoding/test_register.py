"""The register of drafters: a new one is its file, and one entry."""

import sys
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts, window_length
from localspec.decoding.drafters import register
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.register import (
    DRAFTERS,
    WITHOUT_MODEL,
    DrafterEntry,
    Material,
    uses_draft_model,
    uses_passes,
)
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy, Policy, plain_policy
from localspec.decoding.round import Draft, Round
from localspec.decoding.scheduler import Scheduler
from localspec.decoding.stats import AcceptanceStats
from localspec.errors import UsageError
from localspec.launch.drafting import Drafting
from localspec.options import SamplingParams
from tests.decoding.worlds import SaidTwice
from tests.toy import CachedModel, Reply, Stopwatch, Table, ToySequences, to_its_end

CHEAP = PairCosts(PassCosts((1, 32), (1.0, 1.1)), PassCosts((1, 32), (0.05, 0.1)))
N_CTX = 120


class SeriesDrafter:
    """What a file of a new drafter would hold: goes on with a series of numbers by its last step."""

    name = "series"
    reserve = 0.0

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._text: list[int] = []
        self._chance = 0.5

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        self._text = list(tokens)

    def forecast(self, tokens: Sequence[int]) -> DraftForecast:
        return DraftForecast([self._chance] * 31)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted = self._goes_on(list(tokens), plan.draft_length)
        kept = tuple(drafted[: chooser.admitted(tokens, drafted)])
        return Draft(kept, (self._chance,) * len(kept), self.name)

    def learn(self, done: Round) -> None:
        for token in done.confirmed:
            right = self._goes_on(self._text, 1) == [token]
            self._chance += 0.2 * (right - self._chance)
            self._text.append(token)

    def _goes_on(self, text: list[int], length: int) -> list[int]:
        step = text[-1] - text[-2] if len(text) > 1 else 1
        return [(text[-1] + step * (i + 1)) % self._n_vocab for i in range(length)]


@pytest.fixture
def series(monkeypatch: pytest.MonkeyPatch) -> DrafterEntry:
    """Add the file and the entry."""
    module = ModuleType("localspec.decoding.drafters.series")
    module.make = lambda material: SeriesDrafter(60)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = DrafterEntry(
        "series", module.__name__, 5, False, "()", "underline", "the series went on"
    )
    monkeypatch.setitem(DRAFTERS, entry.name, entry)
    return entry


def counting() -> Table:
    """Return a model of 60 ids that says the next but two, and that is not found by looking up."""
    rows = np.zeros((61, 60), dtype=np.float32)
    rows[np.arange(1, 61), np.arange(3, 63) % 60] = 5  # with a window of 1, row i + 1 follows i
    return Table(rows, window=1)


def said_by(policies: Sequence[Policy], target: ToySequences) -> list[Reply]:
    """Let as many sequences as there are policies run at once; return what each said."""
    scheduler = Scheduler[Reply]({Role.TARGET: target}, CancelFlag(), clock := Stopwatch(0.001))
    chooser, replies = Chooser(SamplingParams(temperature=0), Noise(0)), {}
    for slot, policy in enumerate(policies):
        prompt, limits = [slot + 10, slot + 12], Limits(25, ())
        view = target.views[slot]
        generation = Generation(prompt, view, policy, chooser, limits, clock)
        scheduler.start(slot, to_its_end(generation))
    while scheduler.running:
        for ended in scheduler.step():
            assert ended.error is None
            assert ended.value is not None
            replies[ended.slot] = ended.value
    return [replies[slot] for slot in sorted(replies)]


@pytest.mark.parametrize("mode", ["auto", "series", "series:3"])
def test_a_drafter_is_used_by_its_entry_alone(series: DrafterEntry, mode: str) -> None:
    target = ToySequences([CachedModel(counting(), N_CTX) for _ in range(3)])
    drafting = Drafting(3, None, None, (), CHEAP, longest=31)
    plain = said_by([plain_policy() for _ in range(3)], target)
    drafted = said_by([drafting.policy(mode, slot) for slot in range(3)], target)
    assert [each.tokens for each in drafted] == [each.tokens for each in plain]
    for reply in drafted:
        stats = AcceptanceStats()
        for done in reply.rounds:
            stats.add(done)
        assert stats.by_drafter["series"].accepted >= 12
        assert len(reply.rounds) < 15


class Heads(CachedModel):
    """What stands for heads of the target."""

    fresh = 1024


def test_the_adaptive_policy_weighs_all_that_there_are_in_their_order(series: DrafterEntry) -> None:
    model = ToySequences([CachedModel(counting(), N_CTX)])
    ids = partial(SharedIds, 60)
    with_model = Drafting(1, model, ids, (), CHEAP, longest=31).policy("auto")
    without = Drafting(1, None, None, (), CHEAP, longest=31).policy("auto")
    of_target = Heads(counting(), N_CTX)
    own = ToySequences([of_target])
    heads = Drafting(1, own, ids, (), CHEAP, longest=31, has_heads=True).policy("auto")
    assert of_target.fresh == window_length(CHEAP.target, CHEAP.draft_model or CHEAP.target, N_CTX)
    others = [
        name for name, entry in DRAFTERS.items() if not (entry.needs_store or entry.needs_heads)
    ]
    by_heads = ["lookup", "heads", "forced", "series"]
    for policy, names in (
        (with_model, others),
        (heads, by_heads),
        (without, ["lookup", "forced", "series"]),
    ):
        assert isinstance(policy, AdaptivePolicy)
        assert [drafter.name for drafter in policy.drafters] == names


def test_every_entry_makes_a_drafter_of_its_name() -> None:
    model = CachedModel(counting(), N_CTX)
    for name, entry in DRAFTERS.items():
        assert entry.name == name
        drafter = entry.make(
            Material((), model, SharedIds(60), CHEAP.draft_model, past=SaidTwice([]))
        )
        assert drafter.name == name
        assert uses_passes(name) is (name in {"model", "heads"})
        assert entry.needs_draft_model is uses_draft_model(name)


def test_what_drafts_without_a_draft_model_needs_none() -> None:
    assert not uses_draft_model(WITHOUT_MODEL)
    assert not uses_draft_model("off")


PACKAGE = """
from localspec.decoding.drafters.drafter import DraftForecast
from localspec.decoding.drafters.register import DrafterEntry
from localspec.decoding.round import Draft


class Doubling:
    name, reserve = "doubling", 5.0

    def begin(self, tokens, chooser):
        pass

    def forecast(self, tokens):
        return DraftForecast([0.9] * 8)

    def propose(self, tokens, plan, chooser):
        yield from ()
        drafted = [(tokens[-1] + 3 * place) % 60 for place in range(1, plan.draft_length + 1)]
        kept = tuple(drafted[: chooser.admitted(tokens, drafted)])
        return Draft(kept, (0.9,) * len(kept), self.name)

    def learn(self, done):
        pass


def make(material):
    return Doubling()


ENTRY = DrafterEntry("doubling", __name__, 5, False, "<>", "accent", "every third number")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as it lies where it was installed: a module, and metadata with an entry point."""
    (tmp_path / "doubling.py").write_text(PACKAGE)
    metadata = tmp_path / "doubling-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: doubling\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[localspec.drafters]\ndoubling = doubling:ENTRY\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(register, "DRAFTERS", dict(DRAFTERS))
    register._register_others.cache_clear()
    yield tmp_path
    register._register_others.cache_clear()
    sys.modules.pop("doubling", None)


@pytest.mark.parametrize("mode", ["auto", "doubling", "doubling:3"])
@pytest.mark.usefixtures("installed")
def test_a_drafter_of_another_package_is_found_by_its_entry_point_and_drafts(mode: str) -> None:
    target = ToySequences([CachedModel(counting(), N_CTX)])
    plain = said_by([plain_policy()], target)
    drafted = said_by([Drafting(1, None, None, (), CHEAP, longest=31).policy(mode)], target)
    assert drafted[0].tokens == plain[0].tokens
    assert sum(done.accepted for done in drafted[0].rounds) >= 12
    assert {done.draft.drafter for done in drafted[0].rounds} >= {"doubling"}


def test_a_package_that_cannot_be_imported_is_named(installed: Path) -> None:
    (installed / "doubling.py").write_text("import nothing_of_this_name")
    with pytest.raises(UsageError, match="nothing_of_this_name"):
        register.drafters()


def test_another_package_takes_no_name_that_there_is(installed: Path) -> None:
    text = PACKAGE.replace('DrafterEntry("doubling"', 'DrafterEntry("lookup"')
    (installed / "doubling.py").write_text(text)
    assert register.drafters()["lookup"].module == "localspec.decoding.drafters.lookup"
