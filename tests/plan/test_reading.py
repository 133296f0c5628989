"""Which prompts a plain copy reads: by headers, memory and costs alone."""

from dataclasses import replace

import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.costs import PassCosts
from localspec.models.shape import Layer, ModelShape
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.decide import Wish, decide
from localspec.plan.fit import FreeMemory, Place, PlaceUse
from localspec.plan.load_plan import LoadPlan
from localspec.plan.reading import PlainCopy, plain_copy, rule_of
from localspec.resources import Usage
from tests.plan.cases import Case
from tests.plan.golden import TableCosts
from tests.plan.test_decide import PLENTY, gathered

MB = 1 << 20
COPY = PlainCopy(LoadOptions().plain(), 1200 * MB, 28_672)
# Seconds of passes of 1, 16 and 64 tokens, measured on an AMD EPYC with AVX-512 (issue 59).
Q4_K = (0.026, 0.115, 0.362), (0.034, 0.107, 0.255)
Q4_0 = (0.023, 0.109, 0.300), (0.034, 0.280, 0.714)
NOT_REPACKED = (0.030, 0.100, 0.260), (0.030, 0.101, 0.258)


def costs(seconds: tuple[float, ...]) -> PassCosts:
    return PassCosts((1, 16, 64), seconds)


def shape(kind: str, *, windows: bool = False, state_bytes: int = 0) -> ModelShape:
    layer = Layer(100 * MB, {kind: 90 * MB, "Q6_K": 10 * MB}, 256, 256, state_bytes)
    return ModelShape(
        "toy", 4096, 1536, 8960, 12, 1536, 150_000, 1 + windows, (layer,) * 10, 100 * MB, 0, True
    )


def used(free_mb: int) -> tuple[PlaceUse, ...]:
    return (PlaceUse(Place("RAM", free_mb * MB, 0), Usage(1100 * MB), Usage()),)


def test_a_type_that_reads_faster_as_it_lies_in_the_file_is_read_so_where_that_gains() -> None:
    rule = rule_of(COPY, LoadOptions(), *map(costs, Q4_K))
    assert rule is not None
    assert rule.takes(0, 1), "one prompt has one text: of what is not known, all is read so"
    # What is evaluated goes there and back, which 1.7 ms of each token make up for.
    assert [rule.takes(2000, count) for count in (100, 200, 300)] == [False, False, True]
    assert rule_of(COPY, LoadOptions(), *map(costs, Q4_0)) is None
    assert rule_of(COPY, LoadOptions(), *map(costs, NOT_REPACKED)) is None


@pytest.mark.parametrize(
    ("kind", "changes", "free_mb", "on_gpu", "there"),
    [
        ("Q4_K", {}, 9000, False, True),
        ("Q2_K", {}, 9000, False, True),
        ("Q5_K", {}, 9000, False, False),  # which x86 never repacks
        ("Q4_K", {}, 9000, True, False),
        ("Q4_K", {"repack": False}, 9000, False, False),  # as with --exact
        ("Q4_K", {"load_mode": "mmap"}, 9000, False, False),
        ("Q4_K", {"load_mode": "copy"}, 9000, False, True),
        ("Q4_K", {}, 2200, False, False),
        ("Q4_K", {}, 2600, False, True),
    ],
)
def test_a_copy_needs_a_type_of_two_speeds_a_cpu_and_room(
    kind: str,
    changes: dict[str, object],
    free_mb: int,
    on_gpu: bool,
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    options = replace(LoadOptions(), **changes)  # type: ignore[arg-type]
    copy = plain_copy(shape(kind), options, used(free_mb), on_gpu=on_gpu)
    assert (copy is not None) == there
    if copy is not None:
        assert (copy.options.repack, copy.options.load_mode) == (False, "mmap")
        assert copy.held_bytes > 1100 * MB
        assert copy.token_bytes == 10 * 2 * (256 + 256)


def test_what_keeps_a_state_or_a_window_or_an_unknown_size_has_none() -> None:
    free = used(9000)
    for odd in (shape("Q4_K", windows=True), shape("Q4_K", state_bytes=4), None):
        assert plain_copy(odd, LoadOptions(), free, on_gpu=False) is None
    assert plain_copy(shape("Q4_K"), LoadOptions(), (), on_gpu=False) is None


class Reading(TableCosts):
    """Costs of reading, by whether weights are repacked."""

    def __init__(self, *both: StoredCosts | None) -> None:
        super().__init__(Case("none", "none"))
        self._both = both

    def of_reading(self, file: object, options: LoadOptions) -> StoredCosts | None:
        del file
        return self._both[not options.repack]


@pytest.mark.parametrize(
    ("both", "there"),
    [
        ((None, None), True),  # to be measured
        ((StoredCosts(costs(Q4_K[0])), StoredCosts(costs(Q4_K[1]))), True),
        ((StoredCosts(costs(Q4_0[0])), StoredCosts(costs(Q4_0[1]))), False),
        ((StoredCosts(costs(Q4_0[0])), StoredCosts(costs(Q4_0[1]), doubts=1)), True),
    ],
)
def test_what_is_known_to_gain_nothing_is_not_planned(
    both: tuple[StoredCosts | None, ...],
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    launch = LaunchOptions(target="big.gguf")
    facts = gathered(launch, ("big.gguf",))
    facts = replace(facts, free=FreeMemory(PLENTY), costs=Reading(*both))
    found = decide(facts, Wish(launch))
    assert isinstance(found, LoadPlan)
    assert (found.plain is not None) == there
    known = there and all(each is not None and each.sure for each in both)
    assert (found.plain is not None and found.plain.rule is not None) == known
    exact = decide(facts, Wish(replace(launch, exact=True)))
    assert isinstance(exact, LoadPlan)
    assert exact.plain is None
