"""From options and devices to what a plan is asked for."""

from pathlib import Path
from typing import Any

import pytest

from localspec.errors import MemoryShort, NoRoom
from localspec.launch.load import unforeseen
from localspec.llama.devices import Device
from localspec.models.architectures import heads_in
from localspec.models.gguf import GgufHeader, read_header
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
