"""What is given up, in which order, when memory is short. Sizes are in MB of 2^20."""

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import ModelLoadError
from localspec.models.fit import FitPlan, Machine, ModelLoad, Place, split_layers
from localspec.models.fit import fit as fit_loads
from localspec.models.gguf import read_header
from localspec.models.memory import ModelShape, model_shape, predict
from localspec.options import LoadOptions
from tests.models import shapes

MB = 1 << 20
OPTIONS = LoadOptions(4096, max_rows=4, n_batch=512, flash_attention=True, load_mode="copy")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    return shape(tmp_path_factory.mktemp("shapes"), shapes.LLAMA_8B)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    return shape(tmp_path_factory.mktemp("shapes"), shapes.LLAMA_1B)


def shape(folder: Path, size: shapes.Proportions) -> ModelShape:
    path = shapes.sparse_model(folder / "model.gguf", size)
    found = model_shape(replace(read_header(path), name=f"{size.arch}-{size.layers}"))
    assert found is not None
    return found


def machine(ram_mb: int, *gpus_mb: int) -> Machine:
    gpus = tuple(Place(f"GPU{number}", mb * MB, 0) for number, mb in enumerate(gpus_mb))
    return Machine(Place("RAM", ram_mb * MB, 0), gpus)


def fit(
    target: ModelShape,
    draft_model: ModelShape | None,
    machine: Machine,
    options: LoadOptions = OPTIONS,
    *,
    shrinks: bool = True,
    gpus: tuple[str, ...] | None = None,
    draft_gpus: tuple[str, ...] | None = None,
) -> FitPlan:
    """Plan with the usual options, on all GPUs that there are unless some are named."""
    every = tuple(gpu.name for gpu in machine.gpus)
    small = None
    if draft_model is not None:
        small = ModelLoad(draft_model, options, every if draft_gpus is None else draft_gpus)
    big = ModelLoad(target, options, every if gpus is None else gpus)
    return fit_loads(big, small, machine, shrinks=shrinks)


def need_mb(model: ModelShape, **changes: int) -> int:
    """What a model takes on the CPU, rounded up."""
    options = replace(OPTIONS, **changes)  # type: ignore[arg-type]
    return predict(model, options)[0].total_bytes // MB + 1


def kept(plan: FitPlan) -> tuple[int, int, int | None]:
    return plan.n_ctx, plan.target_layers, plan.draft_layers


def test_with_enough_memory_nothing_is_given_up(big: ModelShape, small: ModelShape) -> None:
    plan = fit(big, small, machine(64_000))
    assert kept(plan) == (4096, 0, 0)
    assert plan.given_up == ()
    assert not plan.shrunk


def test_a_gpu_without_memory_of_its_own_adds_none(big: ModelShape) -> None:
    need = need_mb(big)
    own, shared = (
        Machine(Place("RAM", free, 0), (Place("GPU0", free, 0, shares_ram=shares),))
        for free, shares in ((need * MB * 4 // 5, False), (need * MB * 4 // 5, True))
    )
    assert fit(big, None, own, shrinks=False).target_layers > 0
    with pytest.raises(ModelLoadError, match="does not fit"):
        fit(big, None, shared, shrinks=False)
    roomy = replace(shared, ram=Place("RAM", 2 * need * MB, 0))
    roomy = replace(roomy, gpus=(replace(shared.gpus[0], free_bytes=2 * need * MB),))
    assert fit(big, None, roomy, shrinks=False).target_layers == len(big.layers) + 1
    assert (own.usable_bytes, shared.usable_bytes) == (2 * own.ram.free_bytes, own.ram.free_bytes)


def test_both_models_have_to_fit_together(big: ModelShape, small: ModelShape) -> None:
    together = need_mb(big) + need_mb(small, max_rows=1)
    assert fit(big, small, machine(together)).draft_layers == 0
    assert fit(big, small, machine(together - 3)).draft_layers is None


def test_the_draft_model_goes_before_any_context_does(big: ModelShape, small: ModelShape) -> None:
    plan = fit(big, small, machine(need_mb(big)))
    assert kept(plan) == (4096, 0, None)
    assert len(plan.given_up) == 1
    assert "without the draft model" in plan.given_up[0]


def test_context_that_nobody_asked_for_is_halved_until_it_fits(big: ModelShape) -> None:
    plan = fit(big, None, machine(need_mb(big, n_ctx=1024)))
    assert (plan.n_ctx, plan.shrunk) == (1024, True)
    assert "the context is 1024 tokens instead of 4096" in plan.given_up[0]


def test_context_that_was_asked_for_is_not_shrunk_but_refused_with_what_would_fit(
    big: ModelShape,
) -> None:
    with pytest.raises(ModelLoadError) as caught:
        fit(big, None, machine(need_mb(big, n_ctx=2048)), shrinks=False)
    text = str(caught.value)
    assert text.startswith("llama-32 does not fit, even at a context of 4096: it needs 5.")
    assert "try --ctx 2048" in text
    assert "--no-fit" in text
    assert text.isprintable()


def test_a_narrower_cache_is_advised_and_never_taken_unasked(big: ModelShape) -> None:
    options = replace(OPTIONS, n_ctx=32768, max_rows=1)
    ram = need_mb(big, n_ctx=32768, max_rows=1) - 1500
    with pytest.raises(ModelLoadError, match="--ctx 16384 or --kv-type q8_0"):
        fit(big, None, machine(ram), options, shrinks=False)
    packed = replace(options, kv_type="q8_0")
    assert fit(big, None, machine(ram), packed, shrinks=False).kv_type == "q8_0"


def test_what_fits_in_no_way_is_refused_in_one_line(big: ModelShape, small: ModelShape) -> None:
    with pytest.raises(ModelLoadError, match=r"even without its draft model.*a smaller model"):
        fit(big, small, machine(1000))


def test_context_beyond_what_a_model_was_trained_for_is_not_reckoned(big: ModelShape) -> None:
    trained = replace(big, n_ctx_train=2048)
    assert fit(trained, None, machine(need_mb(big, n_ctx=2048))).given_up == ()


def test_all_layers_go_to_a_gpu_that_holds_them(big: ModelShape, small: ModelShape) -> None:
    plan = fit(big, small, machine(8_000, 24_000))
    assert kept(plan) == (4096, 33, 17)
    assert plan.given_up == ()
    ram, gpu = plan.uses
    assert gpu.needed_bytes > big.output_bytes + sum(x.weights_bytes for x in big.layers)
    assert ram.target.weights_bytes == big.input_bytes


def test_the_target_has_the_gpu_first_and_the_draft_model_what_is_left(
    big: ModelShape, small: ModelShape
) -> None:
    alone = fit(big, None, machine(8_000, 24_000)).uses[1].needed_bytes // MB + 1
    plan = fit(big, small, machine(8_000, alone))
    assert kept(plan) == (4096, 33, 0)
    assert plan.given_up == (
        f"the draft model runs on the CPU: GPU0 has {alone * MB / 1e9:.1f} GB free",
    )


def test_as_many_layers_as_fit_go_to_a_small_gpu(big: ModelShape) -> None:
    plan = fit(big, None, machine(8_000, 2_000))
    assert 1 < plan.target_layers < 33
    assert f"{plan.target_layers} of 33 layers of the target are on the GPU" in plan.given_up[0]
    more = fit(big, None, machine(8_000, 2_300))
    assert more.target_layers > plan.target_layers
    assert plan.uses[1].fits
    assert plan.uses[1].needed_bytes > 1_700 * MB


def test_where_a_gpu_has_the_rams_memory_and_the_ram_is_less_the_ram_is_named(
    big: ModelShape, small: ModelShape
) -> None:
    free = need_mb(big) + need_mb(small, max_rows=1)
    gpu = Place("GPU0", 2 * free * MB, 0, shares_ram=True)
    plans = [
        fit(big, small, Machine(Place("RAM", mb * MB, 0), (gpu,)))
        for mb in range(free - 400, free + 400, 10)
    ]
    told = {line for plan in plans for line in plan.given_up if "on the GPU" in line}
    told |= {line for plan in plans for line in plan.given_up if "runs on the CPU" in line}
    assert told
    assert all("RAM has" in line and "GPU0" not in line for line in told), told


def test_a_number_of_layers_that_was_asked_for_is_kept(big: ModelShape) -> None:
    nine = replace(OPTIONS, gpu_layers=9)
    assert fit(big, None, machine(8_000, 24_000), nine).target_layers == 9
    with pytest.raises(ModelLoadError, match="GPU0 has"):
        fit(big, None, machine(8_000, 1_000), nine)


def test_layers_are_shared_out_by_free_memory_and_none_is_lost() -> None:
    free = [6_000, 2_000, 4_000]
    assert split_layers(12, free) == (6, 2, 4)
    assert all(sum(split_layers(count, free)) == count for count in range(40))
    assert split_layers(4, [0, 0]) == (2, 2)
    assert split_layers(5, []) == ()


def test_a_plan_is_told_in_lines(big: ModelShape) -> None:
    first, *rest = fit(big, None, machine(8_000, 2_000)).lines()
    assert first.startswith("needs RAM: 3.")
    assert " GB of 8.4 GB free, GPU0: " in first
    assert first.endswith("(context 4096 in f16)")
    where, lost = rest
    assert where.startswith("the target has ")
    assert where.endswith(" of 33 layers on GPU0")
    assert "layers of the target are on the GPU" in lost


def test_each_model_goes_where_it_is_sent(big: ModelShape, small: ModelShape) -> None:
    two = machine(8_000, 24_000, 24_000)
    plan = fit(big, small, two, gpus=("GPU1",), draft_gpus=("GPU0",))
    ram, first, second = plan.uses
    assert (first.target.total_bytes, second.draft_model.total_bytes) == (0, 0)
    assert first.draft_model.total_bytes > small.output_bytes
    assert second.target.total_bytes > ram.target.total_bytes
    assert plan.placed == (
        "the target has 33 of 33 layers on GPU1, the draft model 17 of 17 layers on GPU0"
    )


def test_the_draft_model_may_be_on_a_gpu_beside_a_target_on_the_cpu(
    big: ModelShape, small: ModelShape
) -> None:
    plan = fit(big, small, machine(8_000, 24_000), gpus=(), draft_gpus=("GPU0",))
    assert kept(plan) == (4096, 0, 17)
    assert plan.given_up == ()
    assert plan.uses[1].target.total_bytes == 0
    assert plan.placed.startswith("the target has all layers on the CPU")


def test_a_cpu_loads_in_its_own_way_where_no_layer_fits_a_gpu(big: ModelShape) -> None:
    usual = replace(OPTIONS, load_mode=None)  # copied, or mapped where layers are on a GPU
    assert fit(big, None, machine(need_mb(big), 100), usual).target_layers == 0
    mapped = replace(OPTIONS, load_mode="mmap")
    with pytest.raises(ModelLoadError, match="does not fit"):
        fit(big, None, machine(need_mb(big), 100), mapped)


def test_shares_that_were_asked_for_count_instead_of_free_memory(big: ModelShape) -> None:
    two = machine(8_000, 24_000, 24_000)
    plan = fit(big, None, two, replace(OPTIONS, tensor_split="3,1"))
    _, first, second = plan.uses
    layer = big.layers[0].weights_bytes
    assert round(first.target.weights_bytes / layer) == 25  # of 33, three quarters
    assert second.target.weights_bytes == 7 * layer + big.output_bytes


def test_of_every_layer_each_gpu_has_its_share_where_tensors_are_split(big: ModelShape) -> None:
    two = machine(8_000, 24_000, 24_000)
    plan = fit(big, None, two, replace(OPTIONS, split="tensor"))
    _, first, second = plan.uses
    alone = fit(big, None, machine(8_000, 24_000)).uses[1].target
    assert first.target == second.target
    assert 2 * first.target.weights_bytes == alone.weights_bytes


def test_experts_and_caches_stay_on_the_cpu_where_that_is_asked_for(big: ModelShape) -> None:
    experts = replace(
        big,
        layers=tuple(replace(each, experts_bytes=each.weights_bytes // 2) for each in big.layers),
    )
    usual = predict(experts, OPTIONS, (33,))
    held_back = predict(experts, replace(OPTIONS, cpu_moe=True), (33,))
    moved = sum(each.experts_bytes for each in experts.layers)
    assert held_back[0].weights_bytes - usual[0].weights_bytes == moved
    assert usual[1].weights_bytes - held_back[1].weights_bytes == moved
    caches = predict(experts, replace(OPTIONS, kv_offload=False), (33,))
    assert (caches[0].kv_bytes, caches[1].kv_bytes) == (usual[1].kv_bytes, 0)
