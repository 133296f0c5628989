"""The register of drafters: a new one is its file, and one entry."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import invalidate_caches
from pathlib import Path

import pytest

from localspec import entry_points
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts, window_length
from localspec.decoding.drafters import register
from localspec.decoding.drafters.register import (
    DRAFTERS,
    WITHOUT_MODEL,
    DrafterContext,
    uses_draft_model,
    uses_passes,
)
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.drafting import Drafting
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy, Policy, plain_policy
from localspec.decoding.scheduler import Scheduler
from localspec.decoding.stats import AcceptanceStats
from localspec.errors import UsageError
from localspec.options import SamplingParams
from localspec.plugins.store import DRAFTER
from tests.decoding.worlds import SaidTwice
from tests.toy import CachedModel, Reply, Stopwatch, ToySequences, counting, to_its_end

CHEAP = PairCosts(PassCosts((1, 32), (1.0, 1.1)), PassCosts((1, 32), (0.05, 0.1)))
N_CTX = 120
SERIES = """
from localspec.decoding.drafters.drafter import DraftForecast
from localspec.decoding.drafters.register import DrafterEntry
from localspec.decoding.round import Draft


class Series:
    name, reserve = "series", 0.0

    def begin(self, tokens, chooser):
        self.text, self.chance = list(tokens), 0.5

    def forecast(self, tokens):
        return DraftForecast([self.chance] * 31)

    def propose(self, tokens, plan, chooser):
        yield from ()
        drafted = self.goes_on(tokens, plan.draft_length)
        kept = tuple(drafted[: chooser.admitted(tokens, drafted)])
        return Draft(kept, (self.chance,) * len(kept), self.name)

    def learn(self, done):
        for token in done.confirmed:
            self.chance += 0.2 * ((self.goes_on(self.text, 1) == [token]) - self.chance)
            self.text.append(token)

    def goes_on(self, text, length):
        step = text[-1] - text[-2] if len(text) > 1 else 1
        return [(text[-1] + step * place) % 60 for place in range(1, length + 1)]


def make(material):
    return Series()


ENTRY = DrafterEntry("series", __name__, 5, False, "<>", "accent", "the series goes on")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as it lies where it was installed: a module, and metadata with an entry point."""
    (tmp_path / "series.py").write_text(SERIES)
    metadata = tmp_path / "series-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: series\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[localspec.drafters]\nseries = series:ENTRY\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(register, "DRAFTERS", dict(DRAFTERS))
    register.drafters.cache_clear()
    entry_points._read.cache_clear()
    yield tmp_path
    register.drafters.cache_clear()
    entry_points._read.cache_clear()
    sys.modules.pop("series", None)


def said_by(policies: Sequence[Policy], target: ToySequences) -> list[Reply]:
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
@pytest.mark.usefixtures("installed")
def test_a_drafter_of_another_package_is_found_by_its_entry_point_and_drafts(mode: str) -> None:
    target = ToySequences([CachedModel(counting(60, 3), N_CTX) for _ in range(3)])
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
    fresh = longest = 1024
    in_one_pass = False


@pytest.mark.parametrize(
    ("sequence", "names"), [(CachedModel, ["model"]), (Heads, ["heads"]), (None, [])]
)
@pytest.mark.usefixtures("installed")
def test_the_adaptive_policy_weighs_all_that_there_are_in_their_order(
    sequence: type[CachedModel] | None, names: list[str]
) -> None:
    model = None if sequence is None else sequence(counting(60, 3), N_CTX)
    views = None if model is None else ToySequences([model])
    has_heads = sequence is Heads
    ids = partial(SharedIds, 60)
    drafting = Drafting(1, views, ids, (), CHEAP, longest=31, has_heads=has_heads)
    policy = drafting.policy("auto")
    assert isinstance(policy, AdaptivePolicy)
    assert [each.name for each in policy.drafters] == [
        "lookup",
        *names,
        "forced",
        "client",
        "series",
    ]
    if isinstance(model, Heads):
        assert model.fresh == window_length(CHEAP.target, PassCosts((1, 32), (0.05, 0.1)), N_CTX)


def test_every_entry_makes_a_drafter_and_a_broken_package_is_named(installed: Path) -> None:
    model = CachedModel(counting(60, 3), N_CTX)
    for name, entry in {**DRAFTERS, DRAFTER.name: DRAFTER}.items():
        material = DrafterContext((), model, SharedIds(60), CHEAP.draft_model, shared=SaidTwice([]))
        assert entry.name == entry.make(material).name == name
        assert uses_passes(name) is (name in {"model", "heads"})
        assert entry.needs_draft_model is uses_draft_model(name)
    assert not uses_draft_model(WITHOUT_MODEL)
    assert not uses_draft_model("off")
    (installed / "series.py").write_text("import nothing_of_this_name")
    with pytest.raises(UsageError, match="nothing_of_this_name"):
        register.drafters()
    # None takes a name that there is.
    text = SERIES.replace('DrafterEntry("series"', 'DrafterEntry("lookup"')
    (installed / "series.py").write_text(text)
    invalidate_caches()
    assert register.drafters()["lookup"].module == "localspec.decoding.drafters.lookup"
