"""What is decided at the edges of what fits: facts are values here, and nothing stands for a machine."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.model import Role
from localspec.errors import MemoryShort
from localspec.llama.devices import Device
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
