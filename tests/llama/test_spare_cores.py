"""Threads of a pass: as many as fit beside other programs, and the same bits with any number of them."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.llama.calibrate import OF_DRAFT_MODEL, measure_pass_costs
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.llama.spare_cores import CoreUsage, SpareCores, usage
from localspec.options import LoadOptions
from localspec.plan.decide import for_many

pytestmark = pytest.mark.slow


@dataclass(slots=True)
class Machine:
    """Cores of which other programs take some, and we what our threads run."""

    n_cores: int
    taken: float = 0.0
    own: float = 0.0
    now: CoreUsage = field(init=False)
    looks: int = 0
    others: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = CoreUsage(100.0, 50.0, 5.0, self.n_cores)

    def after(self, seconds: float) -> float:
        own = seconds * self.own
        self.now = CoreUsage(
            self.now.at_s + seconds,
            self.now.busy_s + seconds * self.taken + own,
            self.now.own_s + own,
            self.n_cores,
        )
        return self.now.at_s

    def look(self) -> CoreUsage:
        self.looks += 1
        return replace(self.now, others=self.others.pop(0) if self.others else 0)


def spare(machine: Machine, wanted: int) -> SpareCores:
    """Cores where passes have been made until now."""
    cores = SpareCores(wanted, machine.look, lambda _seconds: None)
    assert cores.threads(machine.now.at_s) == wanted
    cores.done(machine.now.at_s)
    machine.looks = 0
    return cores


@pytest.mark.parametrize(
    ("others", "threads"),
    [([], 4), ([3, 1, 0], 4), ([1, 2, *[1] * 6], 3), ([9] * 8, 1), ([3, 9, 2, *[9] * 5], 2)],
)
def test_the_first_pass_ignores_what_runs_for_a_moment(others: list[int], threads: int) -> None:
    machine, waits = Machine(4, others=others), list[float]()
    assert SpareCores(4, machine.look, waits.append).threads(0.0) == threads
    assert others == []
    # One look is enough in a hurry and where there is room for all.
    hurried, roomy = Machine(4, others=[3, 0]), Machine(8, others=[4, 0])
    waits.clear()
    assert SpareCores(4, hurried.look, waits.append, moments=1).threads(0.0) == 1
    assert SpareCores(4, roomy.look, waits.append).threads(0.0) == 4
    assert (hurried.looks, roomy.looks, waits) == (1, 1, [])
    # What others did while no pass was made does not count.
    machine = Machine(2, taken=2.0)
    cores = spare(machine, 2)
    assert cores.threads(machine.after(60.0)) == 2
    machine.others = [2] * 8
    assert cores.threads(machine.after(60.0)) == 1


def during_a_pass(cores: SpareCores, machine: Machine, seconds: float) -> int:
    """Make a pass of so many seconds, and return what the next one should have."""
    cores.done(machine.after(seconds))
    return cores.threads(machine.now.at_s)


def test_threads_fit_beside_others() -> None:
    two = [(2, 2, 0.3, 2), (2, 2, 0.7, 1), (2, 2, 2.0, 1)]
    more = [(8, 4, 3.9, 4), (8, 4, 5.8, 2), (8, 4, 50.0, 1), (16, 8, 6.0, 8), (4, 1, 4.0, 1)]
    for n_cores, wanted, taken, threads in (*two, *more):
        for own in (1.5, float(wanted)):  # what we run ourselves leaves room for us
            machine = Machine(n_cores, taken, own)
            assert during_a_pass(spare(machine, wanted), machine, 1.0) == threads


def test_threads_come_back_when_others_are_done() -> None:
    machine = Machine(2)
    cores = spare(machine, 2)
    assert not cores.gave_way
    for machine.taken, threads in ((1.0, 1), (0.5, 1), (0.1, 2), (0.5, 2)):
        assert during_a_pass(cores, machine, 1.0) == threads
    assert cores.gave_way
    machine = Machine(2, taken=1.0)
    cores = spare(machine, 2)
    assert [during_a_pass(cores, machine, 0.01) for _ in range(50)][-1] == 1
    assert machine.looks == 1
    silent = SpareCores(6, lambda: None)
    for now_s in (1e9, 1e9 + 1):
        assert silent.threads(now_s) == 6
        silent.done(now_s + 1)


@pytest.mark.parametrize(("between", "beside", "threads"), [(2.0, 0.0, 2), (2.0, 1.0, 1), (0.0, 1.0, 1)])  # fmt: skip
def test_who_works_while_we_wait_for_it_takes_no_core(
    between: float, beside: float, threads: int
) -> None:
    """A server of this machine verifies what is drafted here, in turns with it: both have all cores."""
    machine = Machine(2, own=2.0)
    cores = spare(machine, 2)
    for _ in range(40):
        machine.taken, machine.own = between, 0.0
        chosen = cores.threads(machine.after(0.12))
        machine.taken, machine.own = beside, float(chosen)
        cores.done(machine.after(0.03))
    assert chosen == threads


def test_what_this_process_runs_is_in_what_has_been_used() -> None:
    before, until = usage(), time.process_time() + 0.3
    while time.process_time() < until:
        pass
    after = usage()
    assert before is not None
    assert after is not None
    assert after.own_s - before.own_s >= 0.3
    # Counted in hundredths, and not at the same instant.
    assert after.busy_s - before.busy_s >= 0.25


@pytest.mark.weights
def test_costs_with_fewer_threads(smollm2: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    options = LoadOptions(threads=2)
    short = replace(OF_DRAFT_MODEL, budget_s=0.1, first_s=0.1, most_s=0.2)
    monkeypatch.setattr(SpareCores, "threads", lambda _self, _now_s: 1)
    assert not measure_pass_costs(smollm2, options, short).gave_way
    monkeypatch.undo()

    def crowded(self: SpareCores, _now_s: float) -> int:
        self.gave_way = True
        return 1

    monkeypatch.setattr(SpareCores, "threads", crowded)
    measured = measure_pass_costs(smollm2, options, short)
    assert measured.gave_way
    assert measured.disturbed


@pytest.mark.weights
@pytest.mark.parametrize("count", [1, 3])
def test_threads_of_passes(smollm2_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = LoadOptions(n_ctx=256, gpu_layers=0, threads=2)
    model = LlamaModel(smollm2_path, usual if count == 1 else for_many(usual, on_gpu=False))
    sequences = LlamaSequences(model, CancelFlag(), model.options, count, 8)
    for fit in (2, 1, 2):
        monkeypatch.setattr(SpareCores, "threads", lambda _self, _now, fit=fit: fit)
        asked = [(at, Pass(Role.TARGET, [7 + fit, 11 + at, 13], 1)) for at in range(count)]
        sequences.together(asked)
        handle = sequences.native.handle
        assert native.llama_n_threads(handle) == native.llama_n_threads_batch(handle) == fit
    sequences.close()
    model.close()


@pytest.mark.weights
@pytest.mark.parametrize("exact", [False, True])
def test_bits_by_threads(
    six_layers_path: Path, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpareCores, "threads", lambda _self, _now: 99)
    options = LoadOptions(n_ctx=1024, gpu_layers=0)
    options = options.exact() if exact else options
    tokens = [(7 * i * i + 3) % 40_000 for i in range(700)]
    model, ends = LlamaModel(six_layers_path, options), ((651, 1), (655, 4), (671, 16))
    one, two = (LlamaContext(model, options=replace(options, threads=count)) for count in (1, 2))
    for context in (one, two):
        context.prefill(tokens[:650])
    for end, width in ends:
        rows = one.logits(tokens[:end], width)
        assert rows.tobytes() == two.logits(tokens[:end], width).tobytes()
        assert rows.std() > 0
    model.close()
