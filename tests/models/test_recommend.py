"""What is proposed for machines from 2 to 128 GB, and why."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_heads

from localspec.decoding.costs import PassCosts
from localspec.models.entries import Chances, HeadsEntry, ModelEntry, PairEntry, parameters
from localspec.models.mmproj import takes
from localspec.models.registry import Registry, load_registry
from localspec.plan.recommend import (
    MOST_OF_GPU,
    ON_A_CPU,
    ON_A_GPU,
    Memory,
    Recommendation,
    Suits,
    best,
    recommend,
)
from localspec.session.model_lines import outlook

GB, GB_PER_S = 10**9, 1e9


def ram(total_gb: float, gb_per_s: float | None) -> Memory:
    speed = None if gb_per_s is None else gb_per_s * GB_PER_S
    return Memory("RAM", round(total_gb * GB), speed)


def gpu(total_gb: float, gb_per_s: float | None) -> Memory:
    return replace(ram(total_gb, gb_per_s), name="GPU", most=MOST_OF_GPU)


def registry_of(sizes: dict[str, int]) -> Registry:
    models = {
        name: ModelEntry(name, size, "0" * 64, params="30B", active="3B" if name == "moe" else None)
        for name, size in sizes.items()
    }
    pairs = {name: PairEntry(name, name, "lookup", None, "", recommend="chat") for name in models}
    return Registry(models, pairs, "")


def test_what_suits_less_follows_and_what_is_free_changes_nothing() -> None:
    registry = registry_of({"a": 5 * GB, "b": 6 * GB, "moe": 7 * GB, "c": 30 * GB, "d": 20 * GB})
    proposals = recommend(registry, [ram(24, 20)])
    suits = {each.pair: each.suits for each in proposals}
    assert suits == {"moe": Suits.WELL, "a": Suits.SLOW, "b": Suits.SLOW}
    assert [*suits] == ["moe", "a", "b"]
    assert proposals[0].tokens_per_s == pytest.approx(20 / 0.7)
    assert proposals[1].tokens_per_s == pytest.approx(4)
    big = recommend(registry_of({"c": 18 * GB, "d": 16 * GB}), [ram(24, 20)])
    assert [(each.pair, each.suits) for each in big] == [("d", Suits.TIGHT), ("c", Suits.TIGHT)]
    for size in (0, 5 * GB):
        assert recommend(registry_of({"a": size}), [ram(3, 20)]) == ()
    assert recommend(registry_of({"a": GB}), [ram(8, 20)], "code") == ()
    assert recommend(registry_of({"a": GB}), []) == ()
    registry = registry_of({"a": 2 * GB})
    assert recommend(registry, [gpu(8, None), ram(8, 60)])[0].memory.name == "GPU"
    assert recommend(registry, [gpu(2.8, None), ram(8, 60)])[0].memory.name == "RAM"
    labels = {"135M": 135e6, "0.5B": 5e8, "30.5B": 3.05e10}
    assert {label: parameters(label) for label in labels} == pytest.approx(labels)
    memory, short, first = ram(24, 48), list[bool](), set[str]()
    for free in (GB, 4 * GB, 12 * GB, 23 * GB, None):
        best_one, *_ = recommend(load_registry(), [replace(memory, free_bytes=free)])
        short.append(best_one.is_short)
        first.add(best_one.pair)
    assert (short, len(first)) == ([True, True, False, False, False], 1)


CHANCES = Chances(code=0.84, thoughts=0.6)


def with_heads(memory: Memory, heads: HeadsEntry, active: str | None = None) -> Recommendation:
    """Return how a model of 10 GB that carries such heads runs in a memory."""
    target = ModelEntry("m", 10 * GB, "0" * 64, heads=heads, params="30B", active=active)
    proposal = best("m", target, [memory], target)
    assert proposal is not None
    return proposal


def heads_of(kind: str = "mtp", step: float | None = 0.1, chances: Chances = CHANCES) -> HeadsEntry:
    return HeadsEntry(kind=kind, source="test", date="2026-11", step=step, chances=chances)  # type: ignore[arg-type]


CHEAP, DEAR = PassCosts((1, 8), (1.0, 1.2)), PassCosts((1, 8), (1.0, 8.0))


def test_what_heads_add_is_foreseen_where_figures_say_it() -> None:
    fast, slow, heads = gpu(24, 200), ram(24, 90), heads_of()
    measured = replace(fast, usual=CHEAP, is_usual_measured=True)
    own = replace(fast, passes={"0" * 64: PassCosts((1, 8), (0.05, 0.06))})
    may, pays = (
        "its heads may make it faster",
        "about 50 with its heads on code, 31 in its thoughts",
    )
    cases: list[tuple[Memory, HeadsEntry, str | None, str]] = [
        # Measured: what pays is said of each kind of text.
        (own, heads, None, pays),
        (measured, heads, None, pays),
        (replace(slow, usual=DEAR, is_usual_measured=True), heads, None, "its heads would not make it faster"),
        # Foreseen by another machine's costs: only what is clear.
        (replace(fast, usual=ON_A_GPU), heads, None, "about 34 with its heads on code, 25 in its thoughts"),
        (replace(slow, usual=ON_A_CPU), heads, None, may),
        # Nothing is known of what passes cost, of the step, of chances, or of how many experts a pass reads.
        (fast, heads, None, may),
        (replace(fast, usual=CHEAP), heads_of(step=None), None, may),
        (replace(fast, usual=CHEAP), heads_of(chances=Chances()), None, may),
        (measured, heads, "3B", may),
    ]  # fmt: skip
    for memory, entry, active, words in cases:
        assert outlook(with_heads(memory, entry, active)) == f", {words}"
    assert not outlook(with_heads(gpu(24, None), heads)), "there is no speed to add to"


def test_the_speed_with_heads_is_that_of_the_best_length() -> None:
    flat = replace(gpu(24, 200), usual=PassCosts((1, 8), (1.0, 1.0)), is_usual_measured=True)
    certain = heads_of(step=0.5, chances=Chances(chat=0.9))
    speeds = with_heads(flat, certain).with_heads
    # Two tokens: 2.71 / 2; three: 3.439 / 2.5; four: 4.0951 / 3.
    assert speeds == pytest.approx({"chat": 20 * 3.439 / 2.5})
    # One pass for the whole draft: seven tokens are 5.69532790 / 1.5.
    of_block = with_heads(flat, replace_heads(certain, kind="dflash")).with_heads
    assert of_block == pytest.approx({"chat": 20 * 5.6953279 / 1.5})


def test_heads_in_a_file_of_their_own_take_a_step_of_its_size() -> None:
    memory = replace(gpu(24, 200), usual=CHEAP, is_usual_measured=True)
    target = ModelEntry("m", 10 * GB, "0" * 64)
    apart = replace_heads(heads_of(step=None), target="m")
    file, unknown = (
        ModelEntry("m-heads", GB, "1" * 64, heads=apart),
        ModelEntry("m-heads", heads=apart),
    )
    known, later = (best("m", target, [memory], each) for each in (file, unknown))
    assert known is not None
    assert outlook(known) == outlook(with_heads(memory, heads_of(step=0.1)))
    assert later is not None
    assert "may make" in outlook(later), "of a size that is still to be learnt, nothing is promised"


def test_what_has_to_be_taken_counts_in_memory() -> None:
    registry = load_registry()
    seeing = recommend(registry, [ram(16, 60)], media=["image"])
    assert all("image" in takes(each.target) for each in seeing)
    hearing = recommend(registry, [ram(64, 60)], media=["image", "audio"])
    assert hearing[0].pair == "gemma4-12b"
    assert hearing[0].needed_bytes - hearing[0].target.size_bytes > 175115840
    assert recommend(registry, [ram(1, 60)], media=["audio"]) == ()
