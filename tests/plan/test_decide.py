"""What is decided at the edges of what fits: facts are values here, and nothing stands for a machine."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.model import Role
from localspec.errors import MemoryShort, NoRoom
from localspec.llama.devices import Device
from localspec.messages import Held
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.decide import Refusal, Wish, decide
from localspec.plan.facts import Facts, gather
from localspec.plan.fit import FreeMemory
from localspec.plan.load_plan import LoadPlan
from localspec.plan.payoff import NamedModel
from tests.plan.cases import Case
from tests.plan.files import own_files
from tests.plan.golden import TableCosts

GB, MB = 1 << 30, 1 << 20
PLENTY = 64 * GB
ON_CPU = LoadOptions(gpu_layers=0)


def gpu(free_bytes: int) -> Device:
    return Device("CUDA0", "a card", free_bytes, free_bytes, "GPU", 0, "CUDA")


@cache
def gathered(launch: LaunchOptions, names: tuple[str, ...]) -> Facts:
    paths = [own_files() / name for name in names]
    models = [NamedModel(name, path, path) for name, path in zip(names, paths, strict=True)]
    return replace(gather(launch, models), costs=TableCosts(Case("none", "none")))


def decided(
    ram_bytes: int,
    gpus: Sequence[Device] = (),
    names: tuple[str, ...] = ("big.gguf",),
    load: LoadOptions | None = None,
    **wish: Any,
) -> LoadPlan | Refusal:
    launch = LaunchOptions(target=names[0], load=load or LoadOptions())
    facts = replace(gathered(launch, names), free=FreeMemory(ram_bytes, tuple(gpus)))
    return decide(facts, Wish(launch, **wish))


def plan(*arguments: Any, **more: Any) -> LoadPlan:
    found = decided(*arguments, **more)
    assert isinstance(found, LoadPlan), found
    return found


def test_all_but_192_mb_of_the_ram_may_be_filled() -> None:
    needed = plan(PLENTY).uses[0].needed_bytes
    full = plan(needed + 192 * MB)
    assert (full.options.n_ctx, full.notes) == (None, ())
    assert plan(needed + 192 * MB - 1).options.n_ctx == 2048


def test_all_but_512_mb_of_a_gpu_may_be_filled() -> None:
    on_gpu = plan(PLENTY, [gpu(80 * GB)])
    needed = on_gpu.uses[1].needed_bytes
    assert on_gpu.options.gpu_layers == 33
    assert plan(PLENTY, [gpu(needed + 512 * MB)]).options.gpu_layers == 33
    assert plan(PLENTY, [gpu(needed + 512 * MB - 1)]).options.gpu_layers == 32


def test_no_context_shrinks_below_1024_tokens() -> None:
    least = plan(PLENTY, load=LoadOptions(1024)).uses[0].needed_bytes + 192 * MB
    assert plan(least).options.n_ctx == 1024
    refusal = decided(least - 1)
    assert isinstance(refusal, Refusal)
    assert isinstance(refusal.error, MemoryShort)


@pytest.mark.parametrize("layers", [0, 9, 33, 99])
def test_layers_that_the_user_sends_to_a_gpu_stay_as_many(layers: int) -> None:
    load = LoadOptions(gpu_layers=layers)
    found = plan(PLENTY, [gpu(80 * GB)], load=load)
    assert found.options.gpu_layers == layers
    pair = plan(PLENTY, [gpu(80 * GB)], ("big.gguf", "small.gguf"), load=load)
    assert pair.draft_options is not None
    assert (pair.options.gpu_layers, pair.draft_options.gpu_layers) == (layers, layers)


def test_layers_for_a_gpu_that_is_not_there_are_noted() -> None:
    (note,) = plan(PLENTY, load=LoadOptions(gpu_layers=9)).notes
    assert note.startswith("--gpu-layers 9 puts none on a GPU")
    assert plan(PLENTY, load=ON_CPU).notes == ()
    assert plan(PLENTY, [gpu(80 * GB)], load=LoadOptions(gpu_layers=9)).notes == ()


@pytest.mark.parametrize(("parallel", "has_room"), [(1, True), (8, True), (16, False)])
def test_sequences_that_fit_alone_have_room_beside_others_or_are_refused(
    parallel: int, has_room: bool
) -> None:
    """There are 4.2 GB of weights, and 0.5 GB a sequence: context and layers are the same in each case."""
    found = decided(10 * GB, load=ON_CPU, parallel=parallel, others=Held({"RAM": 9 * GB}))
    assert isinstance(found, LoadPlan) is has_room
    if isinstance(found, Refusal):
        assert isinstance(found.error, NoRoom)
        assert "big.gguf has less room" in str(found.error)


def test_a_gpu_keeps_room_for_the_experts_of_a_layer_where_those_are_on_the_cpu() -> None:
    load, names = LoadOptions(cpu_moe=True), ("experts.gguf",)
    all_layers = plan(PLENTY, [gpu(80 * GB)], names, load)
    needed = all_layers.uses[1].needed_bytes + 512 * MB
    held = plan(PLENTY, [gpu(needed)], names, load)
    assert (held.options.gpu_layers or 0) < (all_layers.options.gpu_layers or 0)


def test_a_draft_model_is_on_a_gpu_whole_or_not_at_all() -> None:
    names = ("big.gguf", "small.gguf")
    whole = plan(PLENTY, [gpu(80 * GB)], names).uses[1]
    half = whole.target.total_bytes + whole.draft_model.total_bytes // 2 + 512 * MB
    found = plan(PLENTY, [gpu(half)], names)
    assert found.draft_options is not None
    assert (found.options.gpu_layers, found.draft_options.gpu_layers) == (33, 0)


@pytest.mark.parametrize(
    ("least", "n_ctx"), [(4096, None), (4097, 4097), (6000, 6000), (1 << 20, 1 << 17)]
)
def test_a_prompt_has_its_context_up_to_what_was_trained(least: int, n_ctx: int | None) -> None:
    assert plan(PLENTY, least_ctx=least).options.n_ctx == n_ctx


def test_a_conversation_grows_only_where_the_usual_context_fits_whole() -> None:
    usual = plan(PLENTY).uses[0].needed_bytes + 192 * MB
    assert plan(usual - 1, roomy=True).options.n_ctx == 2048
    assert plan(usual, roomy=True).options.n_ctx is None
    assert plan(PLENTY, roomy=True).options.n_ctx == 16384


PAIR = ("big.gguf", "small.gguf")


class Known(TableCosts):
    """Costs of a pair whose drafts pay alone and not beside three others; notes how models would be loaded."""

    def __init__(self) -> None:
        wide = (1, 96)
        known = {
            f"target {own_files() / PAIR[0]}": (wide, (1.0, 60.0)),
            f"draft {own_files() / PAIR[1]}": (wide, (0.05, 5.0)),
        }
        super().__init__(Case("pays alone", "none", costs=known))
        self.asked: list[tuple[Role, int | None]] = []

    def of(
        self, file: Path, options: LoadOptions, role: Role, lora: Path | None = None
    ) -> StoredCosts | None:
        self.asked.append((role, options.gpu_layers))
        return super().of(file, options, role, lora)


def test_a_draft_model_that_pays_alone_is_left_out_beside_others() -> None:
    launch = LaunchOptions(target=PAIR[0])
    facts = replace(gathered(launch, PAIR), free=FreeMemory(PLENTY), costs=Known())
    for parallel, drafts in ((1, True), (4, False), (None, True)):
        found = decide(facts, Wish(launch, parallel))
        assert isinstance(found, LoadPlan)
        assert (found.draft_model is not None) is (found.left_out is None) is drafts


def test_costs_are_those_of_models_that_are_loaded_so() -> None:
    launch, known = LaunchOptions(target=PAIR[0], draft_gpu_layers=4), Known()
    free = FreeMemory(PLENTY, (gpu(80 * GB),))
    assert isinstance(
        decide(replace(gathered(launch, PAIR), free=free, costs=known), Wish(launch)), LoadPlan
    )
    assert known.asked == [(Role.TARGET, 33), (Role.DRAFT_MODEL, 4)]


@pytest.mark.parametrize(
    ("more", "card", "expected"),
    [
        ({}, False, ()),
        ({}, True, ("CUDA0",)),
        ({"draft_devices": ("RPC0",)}, True, ("RPC0",)),
        ({"draft_gpu_layers": 2}, False, ("RPC0",)),
    ],
)
def test_what_drafts_for_a_worker_stays_here_unless_it_is_placed(
    more: dict[str, Any], card: bool, expected: tuple[str, ...]
) -> None:
    worker = Device("RPC0", "127.0.0.1:50052", PLENTY, PLENTY, "GPU", 0, "RPC")
    launch = LaunchOptions(target="big.gguf", draft_model="small.gguf", **more)
    facts = replace(
        gathered(launch, ("big.gguf", "small.gguf")),
        free=FreeMemory(PLENTY, (worker, gpu(PLENTY)) if card else (worker,)),
    )
    found = decide(facts, Wish(launch))
    assert isinstance(found, LoadPlan), found
    assert found.draft_options is not None
    assert facts.free.names(found.draft_options) == expected
