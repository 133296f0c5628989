"""What is proposed for machines from 2 to 128 GB, and why."""

from dataclasses import replace

import pytest

from localspec.models.entries import ModelEntry, PairEntry, Purpose, parameters
from localspec.models.recommend import MOST_OF_GPU, Memory, Suits, recommend
from localspec.models.registry import Registry, load_registry

GB, GB_PER_S = 10**9, 1e9


def ram(total_gb: float, gb_per_s: float | None) -> Memory:
    speed = None if gb_per_s is None else gb_per_s * GB_PER_S
    return Memory("RAM", round(total_gb * GB), speed)


def gpu(total_gb: float, gb_per_s: float | None) -> Memory:
    return replace(ram(total_gb, gb_per_s), name="GPU", most=MOST_OF_GPU)


# A system counts a few per cent more bytes than what was bought has gigabytes. Each with why the first, and not a larger one.
MACHINES = {
    # Nothing leaves half of it to others.
    "2 GB, CPU": ([ram(2, 8)], ["gemma3-1b"]),
    # 2 GB may be taken.
    "4 GB, CPU": ([ram(4, 15)], ["qwen3-1.7b", "gemma3-1b", "qwen3-4b-2507"]),
    "8 GB, CPU": ([ram(8, 30)], ["qwen3-4b-2507", "qwen3-1.7b", "gemma3-1b"]),
    # qwen3-8b would fit, at 7.0 tokens/s; of gemma4-e4b a token reads 4.5 of 8 billion parameters.
    "16 GB, CPU": ([ram(16, 35)], ["gemma4-e4b", "qwen3-4b-2507", "qwen3-1.7b"]),
    # Of mixtures of experts a token reads a seventh; the dense 14B does 6.7 tokens/s.
    "32 GB, CPU": ([ram(32, 60)], ["gemma4-26b-a4b", "gpt-oss-20b", "gemma4-12b"]),
    "64 GB, CPU": ([ram(64, 60)], ["qwen3-30b-a3b-2507", "gemma4-26b-a4b", "gpt-oss-20b"]),
    "128 GB, CPU": ([ram(134, 200)], ["gpt-oss-120b", "qwen3-30b-a3b-2507", "qwen3-32b"]),
    # A GPU that nobody measured is taken to be fast.
    "8 GB GPU": ([gpu(8, None), ram(16, 40)], ["gemma4-e4b", "qwen3-8b", "qwen3-4b-2507"]),
    # 20.4 GB may be taken, which the dense 32B just misses.
    "24 GB GPU": (
        [gpu(23.9, 900), ram(32, 60)],
        ["qwen3-30b-a3b-2507", "gemma4-26b-a4b", "gpt-oss-20b"],
    ),
    # Its memory is everybody's.
    "16 GB, Apple": ([ram(16, 100)], ["gemma4-12b", "gemma4-e4b", "qwen3-8b"]),
    # The dense 32B is larger by a fifteenth, and a tenth as fast.
    "64 GB, Apple": ([ram(64, 400)], ["qwen3-30b-a3b-2507", "qwen3-32b", "gemma4-26b-a4b"]),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_largest_that_fits_and_is_fast_enough_comes_first(machine: str) -> None:
    memories, wanted = MACHINES[machine]
    proposals = recommend(load_registry(), memories)
    assert [each.pair for each in proposals] == wanted
    assert proposals[0].suits is (Suits.TIGHT if machine == "2 GB, CPU" else Suits.WELL)
    assert proposals[0].memory is memories[0]
    coders = recommend(load_registry(), [ram(12, 60)], "code")
    assert [each.pair for each in coders[:2]] == ["qwen2.5-coder-7b", "qwen2.5-coder-1.5b"]


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
    assert [(each.pair, each.suits) for each in proposals] == [
        ("moe", Suits.WELL),
        ("a", Suits.SLOW),
        ("b", Suits.SLOW),
    ]
    assert proposals[0].tokens_per_s == pytest.approx(20 / 0.7)
    assert proposals[1].tokens_per_s == pytest.approx(4)
    big = recommend(registry_of({"c": 18 * GB, "d": 16 * GB}), [ram(24, 20)])
    assert [(each.pair, each.suits) for each in big] == [("d", Suits.TIGHT), ("c", Suits.TIGHT)]
    cases: list[tuple[int, list[Memory], Purpose]] = [
        (5 * GB, [ram(3, 20)], "chat"),
        (0, [ram(3, 20)], "chat"),
        (GB, [ram(8, 20)], "code"),
        (GB, [], "chat"),
    ]
    for size, memories, kind in cases:
        assert recommend(registry_of({"a": size}), memories, kind) == ()
    registry = registry_of({"a": 2 * GB})
    assert recommend(registry, [gpu(8, None), ram(8, 60)])[0].memory.name == "GPU"
    assert recommend(registry, [gpu(2.8, None), ram(8, 60)])[0].memory.name == "RAM"
    labels = {"135M": 135e6, "0.5B": 5e8, "30.5B": 3.05e10}
    assert {label: parameters(label) for label in labels} == pytest.approx(labels)
    memory = ram(24, 48)
    proposed = [
        recommend(load_registry(), [replace(memory, free_bytes=free * GB)])
        for free in (1, 5, 12, 19, 23)
    ]
    assert len({tuple(each.pair for each in proposals) for proposals in proposed}) == 1
    assert [proposals[0].is_short for proposals in proposed] == [True, True, False, False, False]
    assert not recommend(load_registry(), [memory])[0].is_short
