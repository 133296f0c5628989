"""From options and devices to what a plan is asked for."""

from pathlib import Path
from typing import Any

import pytest

from localspec.errors import MemoryShort, ModelLoadError, NoRoom
from localspec.launch.load import unforeseen
from localspec.llama.devices import Device
from localspec.messages import Held
from localspec.models.architectures import heads_in
from localspec.models.gguf import GgufHeader, parse_header, read_header
from localspec.models.shape import model_shape, target_rows_bytes
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan import facts as fitting
from localspec.plan.facts import free_memory
from localspec.plan.fit import PairLoad, Place, PlaceUse, forecast
from localspec.plan.make import make_plan
from localspec.plan.memory import kv_bytes
from localspec.plugins.serve.http import status_of
from localspec.resources import Usage
from tests.llama.tiny_models import write_qwen35
from tests.models.gguf_builder import model_file
from tests.models.shapes import LLAMA_1B, LLAMA_8B, QWEN35, Proportions, sparse_model

GB = 1 << 30
DEVICES = [
    Device("CUDA0", "one", 6 * GB, 8 * GB, "GPU", 0, "CUDA"),
    Device("CUDA1", "two", 3 * GB, 4 * GB, "GPU", 0, "CUDA"),
    Device("CPU", "cpu", 16 * GB, 16 * GB, "CPU", 0, "CPU"),
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.plan.facts.devices", lambda: DEVICES)
    monkeypatch.setattr(fitting, "free_ram_bytes", lambda: 8 * GB)


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> tuple[GgufHeader, GgufHeader]:
    folder = tmp_path_factory.mktemp("headers")
    big = sparse_model(folder / "big.gguf", LLAMA_8B)
    small = sparse_model(folder / "small.gguf", LLAMA_1B)
    return read_header(big), read_header(small)


@pytest.mark.usefixtures("machine")
def test_gpus_are_those_that_the_options_allow() -> None:
    cases: list[tuple[Any, list[str]]] = [
        ({}, ["CUDA0", "CUDA1"]),
        ({"devices": ("cuda1",)}, ["CUDA1"]),
        ({"devices": ("CPU",)}, []),
        ({"gpu_layers": 0}, []),
        ({"split": "none"}, ["CUDA0"]),
    ]
    for options, gpus in cases:
        found = free_memory().places(LoadOptions(**options))
        assert found is not None
        assert found[0].free_bytes == 8 * GB
        assert [gpu.name for gpu in found[1:]] == gpus


@pytest.mark.usefixtures("machine")
def test_a_pair_is_planned_where_it_is_sent(headers: tuple[GgufHeader, GgufHeader]) -> None:
    away = LoadOptions(devices=("cpu",)), LoadOptions(devices=("CUDA1",))
    for options, layers, places in (
        ((None, None), (33, 17), ["RAM", "CUDA0", "CUDA1"]),
        (away, (0, 17), ["RAM", "CUDA1"]),
    ):
        plan = PairLoad.of(*headers, options[0] or LoadOptions(), options[1]).fit(free_memory())
        assert plan is not None
        assert (plan.n_ctx, plan.target_layers, plan.draft_layers) == (4096, *layers)
        assert [use.place.name for use in plan.uses] == places
    # Layers do not leave a GPU for a larger context: both models fill the two GPUs nearly.
    n_ctx = PairLoad.of(*headers).roomy_context(free_memory())
    larger = PairLoad.of(*headers, LoadOptions(n_ctx=n_ctx)).fit(free_memory())
    assert larger is not None
    assert (larger.target_layers, larger.draft_layers) == (33, 17)


@pytest.mark.usefixtures("machine")
def test_what_is_asked_for_is_what_is_reckoned(headers: tuple[GgufHeader, GgufHeader]) -> None:
    big, _ = headers

    def cpu_bytes(**options: object) -> int:
        load = LoadOptions(gpu_layers=0, **options)  # type: ignore[arg-type]
        plan = PairLoad.of(big, options=load).fit(free_memory())
        assert plan is not None
        return plan.uses[0].needed_bytes

    usual = cpu_bytes()
    assert cpu_bytes(n_ctx=8192) > usual + 500_000_000
    assert cpu_bytes(n_ctx=8192, kv_type="q8_0") < cpu_bytes(n_ctx=8192)
    assert cpu_bytes(flash_attention=True) < usual == cpu_bytes(flash_attention=False)
    assert cpu_bytes(max_rows=1) < usual
    with pytest.raises(ModelLoadError, match="does not fit"):  # mapped, and repacked beside it
        cpu_bytes(load_mode="mmap")
    assert cpu_bytes(load_mode="mmap", repack=False) == usual


@pytest.mark.parametrize(
    ("free_gb", "kv_type", "n_ctx"),
    [
        (64, "f16", 16384),
        (10, "f16", 8192),  # 0.5 GB more of the cache alone
        (6, "f16", None),
        (64, "f32", 16384),
        (16, "f32", 8192),
    ],
)
def test_a_conversation_gets_a_context_that_takes_little_of_what_is_free(
    headers: tuple[GgufHeader, GgufHeader],
    free_gb: int,
    kv_type: str,
    n_ctx: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "free_ram_bytes", lambda: free_gb * GB)
    asked = LoadOptions(gpu_layers=0, kv_type=kv_type)
    assert PairLoad.of(headers[0], options=asked).roomy_context(free_memory()) == n_ctx


def test_a_prompt_gets_the_context_that_it_needs_as_far_as_there_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sparse_model(tmp_path / "target.gguf", LLAMA_8B)
    for least_ctx, free_gb, asked, n_ctx in (
        (0, 64, None, None),
        (4000, 64, None, None),
        (9000, 64, None, 9000),
        (200_000, 64, None, 131_072),  # what it was trained for
        (24_000, 7, None, 12_000),
        (9000, 64, 5000, 5000),
    ):
        monkeypatch.setattr(fitting, "free_ram_bytes", lambda free=free_gb: free * GB)
        load = LoadOptions(gpu_layers=0, n_ctx=asked)
        plan = make_plan(LaunchOptions(target=str(target), load=load), least_ctx=least_ctx)
        assert plan.options.n_ctx == n_ctx
        smaller = [each for each in plan.notes if "tokens instead of" in each]
        assert len(smaller) == (n_ctx == 12_000)


def test_nothing_is_planned_where_it_cannot_be_known(
    headers: tuple[GgufHeader, GgufHeader], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = free_memory().places(LoadOptions(gpu_layers=0))
    assert here is not None
    assert here == (Place("RAM", here[0].free_bytes, here[0].headroom_bytes),)
    toy = parse_header(model_file(), name="toy")
    assert PairLoad.of(toy).fit(free_memory()) is None
    assert PairLoad.of(headers[0], toy).fit(free_memory()) is None
    monkeypatch.setattr(fitting, "free_ram_bytes", lambda: None)
    assert PairLoad.of(headers[0]).fit(free_memory()) is None


@pytest.mark.usefixtures("machine")
def test_as_many_sequences_fit_as_their_caches_where_the_layers_are(
    headers: tuple[GgufHeader, GgufHeader], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(**options: object) -> int:
        load = LoadOptions(**options)  # type: ignore[arg-type]
        found = PairLoad.of(headers[1], options=load).sequences(free_memory())
        assert found is not None
        return found

    assert len({count(n_ctx=4096, gpu_layers=n) for n in (None, 0, 2)}) == 3
    assert count(n_ctx=1 << 17, n_batch=1 << 16, gpu_layers=0) == 0
    counts = []
    for kind in ("GPU", "IGPU"):  # one without memory of its own shares the RAM
        gpu = Device("Vulkan0", "graphics", 8 * GB, 8 * GB, kind, 0, "Vulkan")
        monkeypatch.setattr("localspec.plan.facts.devices", lambda known=gpu: [known])
        monkeypatch.setattr(fitting, "free_ram_bytes", lambda: 2 * GB)
        counts.append(count(n_ctx=4096))
    assert 0 < counts[1] < counts[0] / 3


def test_heads_that_are_not_loaded_yet_leave_less_room_for_sequences(
    headers: tuple[GgufHeader, GgufHeader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "free_ram_bytes", lambda: 8 * GB)
    more: Any = (("target_layers", [2, 16, 29]), ("target_hidden_size", 4096))
    options, counts = LoadOptions(256, gpu_layers=0), list[int]()
    for tied in (True, False):  # without an output matrix of their own, and with one
        size = Proportions("eagle3", 1, 4096, 14336, 32, 8, 128, 128256, tied, more=more)
        file = read_header(sparse_model(tmp_path / f"{tied}.gguf", size))
        heads = heads_in(file)
        pair = PairLoad.of(headers[0], file, options, heads=heads)
        counts.append(pair.sequences(free_memory()) or 0)
        shapes = model_shape(headers[0]), model_shape(file)
    assert heads is not None
    target, own = (each for each in shapes if each is not None)
    caches = kv_bytes((*target.layers, *own.layers), options)
    of_each = caches + target_rows_bytes(target, heads)
    assert counts[0] - counts[1] == pytest.approx(own.output_bytes / of_each, abs=1)


@pytest.mark.usefixtures("machine")
def test_memory_is_forecast_of_mtp_layers_where_they_draft_instead_of_a_draft_model(
    headers: tuple[GgufHeader, GgufHeader], tmp_path: Path
) -> None:
    mtp = read_header(sparse_model(tmp_path / "mtp.gguf", QWEN35))
    options = LoadOptions(256, gpu_layers=0)

    def lines(target: GgufHeader, small: GgufHeader | None) -> tuple[str, ...]:
        return forecast(target, small, options, None, free_memory()).lines

    with_draft, alone = (lines(mtp, small) for small in (headers[1], None))
    assert with_draft == alone
    plain, pair = (lines(headers[0], small) for small in (None, headers[1]))
    assert plain != pair


@pytest.mark.parametrize(
    ("free_gb", "held", "parallel", "error"),
    [
        (20, 0, 1, None),
        (4, 9 * GB, 1, NoRoom),  # there are 4.2 GB of weights, and 0.5 GB a sequence
        (4, GB // 2, 1, MemoryShort),
        (6, 9 * GB, 1, None),
        (6, 9 * GB, 8, NoRoom),
        (6, GB // 8, 8, None),  # alone it would have no more
    ],
)
def test_what_fits_beside_others_as_well_as_alone_has_room(
    headers: tuple[GgufHeader, GgufHeader],
    monkeypatch: pytest.MonkeyPatch,
    free_gb: int,
    held: int,
    parallel: int,
    error: type[ModelLoadError] | None,
) -> None:
    pair = PairLoad.of(headers[0], options=LoadOptions(gpu_layers=0))
    for mapped in (0, 4 * GB):  # which the system takes to be free
        free = free_gb * GB + mapped
        monkeypatch.setattr(fitting, "free_ram_bytes", lambda free=free: free)
        others = Held({"RAM": held} if held else {}, mapped)
        if error is None:
            pair.require_room(free_memory(), others, parallel)
            continue
        with pytest.raises(error) as caught:
            pair.require_room(free_memory(), others, parallel)
        assert caught.type is error


@pytest.mark.usefixtures("machine")
def test_a_draft_model_and_layers_on_a_gpu_are_not_given_up_for_others(
    headers: tuple[GgufHeader, GgufHeader],
) -> None:
    long = LoadOptions(n_ctx=32768)
    small = PairLoad.of(headers[1], headers[1], LoadOptions(), LoadOptions())
    small.require_room(free_memory(), Held({"CUDA0": GB}), 1)
    with pytest.raises(NoRoom):
        PairLoad.of(*headers, long, long).require_room(free_memory(), Held({"CUDA0": 9 * GB}), 1)


def test_a_plan_next_to_others_is_one_that_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = LaunchOptions(target=str(write_qwen35(tmp_path / "q.gguf")), draft="off")
    for free, others, error in (
        (1 << 20, Held({"RAM": GB}), NoRoom),
        (1 << 20, Held(), MemoryShort),
        (1 << 20, None, MemoryShort),
        (GB, Held(mapped_bytes=GB), MemoryShort),
    ):
        monkeypatch.setattr(fitting, "free_ram_bytes", lambda free=free: free)
        with pytest.raises(ModelLoadError) as caught:
            make_plan(launch, parallel=2, others=others)
        assert caught.type is error
    assert make_plan(launch, parallel=2, others=Held()).target.name == "q.gguf"


def test_a_plan_is_made_once_more_before_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = LaunchOptions(target=str(write_qwen35(tmp_path / "q.gguf")), draft="off")
    waits, asked = list[float](), iter([1 << 20, 8 * GB])
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr(fitting, "free_ram_bytes", lambda: next(asked))
    assert make_plan(launch).target.name == "q.gguf"
    assert len(waits) == 1
    assert status_of(MemoryShort("")) == status_of(NoRoom("")) == 503, "it may fit later"


def test_memory_that_was_taken_and_not_planned_is_told_with_what_helps() -> None:
    mb = 1_000_000
    gpu = PlaceUse(
        Place("CUDA0", 1000 * mb, 100 * mb),
        Usage(400 * mb, kv_bytes=200 * mb),
        Usage(100 * mb, compute_bytes=50 * mb),
    )
    for taken in (
        {"CUDA0": Usage(500 * mb, 300 * mb, 50 * mb)},  # what is planned and kept free
        {"RAM": Usage(9000 * mb, 9000 * mb)},
        {"CUDA0": Usage(9000 * mb, 200 * mb)},  # the range of a file that is mapped
    ):
        assert list(unforeseen([gpu], taken)) == []
    (line,) = unforeseen([gpu], {"CUDA0": Usage(500 * mb, 300 * mb, 51 * mb)})
    assert line.startswith("caches and scratch take 351 MB of CUDA0, and 250 MB were planned")
    assert "--ctx" in line
