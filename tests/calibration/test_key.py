"""The key of a measurement: what changes it, and what does not."""

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from localspec.calibration import key as key_module
from localspec.calibration.key import digest_of, key_of
from localspec.llama.backend import build
from localspec.llama.devices import Device
from localspec.models.store import file_identity
from localspec.options import LoadOptions
from localspec.resources import default_threads

CHANGED: dict[str, Any] = {
    "gpu_layers": 7,
    "devices": ("CPU",),
    "threads": default_threads() + 1,
    "threads_batch": default_threads() + 2,
    "kv_type": "bf16",
    "flash_attention": True,
    "repack": False,
    "load_mode": "mmap",
    "n_batch": 48,
    "split": "none",
    "tensor_split": "3,1",
    "cpu_moe": True,
    "kv_offload": False,
}
# What several devices share needs several.
TWO_GPUS = [Device(f"CUDA{n}", "one", 1, 1, "GPU", n, "CUDA") for n in (0, 1)]
LEFT_OUT: dict[str, Any] = {"n_ctx": 777, "max_rows": 2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def digest(file: Path, **options: Any) -> str:
    return digest_of(key_of("costs", file, LoadOptions(**options)))


def test_every_option_is_known_to_matter_or_not() -> None:
    assert {field.name for field in fields(LoadOptions)} == {*CHANGED, *LEFT_OUT}


def test_options_of_kernels(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CHANGED.items():
        with monkeypatch.context() as patch:
            if name == "tensor_split":
                patch.setattr("localspec.llama.devices.devices", lambda: TWO_GPUS)
            assert digest(file, **{name: value}) != digest(file), name


def test_a_default_is_what_it_stands_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest(file, **LEFT_OUT) == digest(file)
    assert key_of("safe widths", file, LoadOptions()) != key_of("costs", file, LoadOptions())
    threads = default_threads()
    assert digest(file, threads=threads, threads_batch=threads) == digest(file)
    on_cpu = digest(file, gpu_layers=0)
    assert digest(file, gpu_layers=0, n_batch=128) == on_cpu
    assert digest(file, gpu_layers=0, flash_attention=False) == on_cpu
    for gpus, n_batch in (([], 128), (TWO_GPUS[:1], 512)):
        monkeypatch.setattr(key_module, "placed_on", lambda _, gpus=gpus: gpus)
        assert digest(file, n_batch=n_batch) == digest(file)
    monkeypatch.undo()
    digests = set()
    for free_bytes in (1, 2):  # free memory is not in the key
        device = Device("CUDA0", "one", free_bytes, 8 << 30, "GPU", 0, "CUDA")
        for name in ("localspec.calibration.key", "localspec.llama.devices"):
            monkeypatch.setattr(f"{name}.devices", lambda device=device: [device])
        digests.add(digest(file))
    assert len(digests) == 1


def test_a_build_or_device_makes_a_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[str, Any]] = [
        ("build", lambda: replace(build(), version="9.9")),
        ("build", lambda: replace(build(), backends=("another",))),
        ("build", lambda: replace(build(), features=("CPU: SSE3 = 1",))),
        ("devices", lambda: [Device("CPU", "another", 1, 1, "CPU", 0)]),
        ("FORMAT", 0),
    ]
    before = digest(file)
    for name, value in rows:
        with monkeypatch.context() as patch:
            patch.setattr(key_module, name, value)
            assert digest(file) != before


def test_each_placement_has_a_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device("CPU", "cpu", 1, 1, "CPU", 0, "CPU")
    near = Device("RPC0", "127.0.0.1:1", 1, 1, "GPU", 1, "RPC")
    far = Device("RPC1", "127.0.0.1:2", 1, 1, "GPU", 2, "RPC")
    known = [cpu, near, far]
    for module in ("localspec.llama.devices", "localspec.calibration.key"):
        monkeypatch.setattr(f"{module}.devices", lambda: known)
    options: list[dict[str, Any]] = [
        {"devices": ("cpu",)},
        {"devices": ("RPC0",)},
        {"devices": ("RPC1",)},
        {"devices": ("RPC0",), "gpu_layers": 10},
        {"devices": ("RPC0",), "kv_offload": False},
        {"devices": ("RPC0", "RPC1")},
        {"devices": ("RPC0", "RPC1"), "tensor_split": "3,1"},
        {"devices": ("RPC0", "RPC1"), "split": "none"},
    ]
    digests = [digest(file, **each) for each in options]
    assert len(set(digests)) == len(options)
    known[:] = [cpu]
    assert digest(file, devices=("cpu",)) == digests[0], "a worker is nothing to the CPU"
    before = file_identity(file)
    assert str(file.parent) not in str(key_of("costs", file, LoadOptions()))
    assert file_identity(file) == before
    stamp = file.stat().st_mtime_ns
    os.utime(file, ns=(stamp, stamp + 1_000_000))
    touched = file_identity(file)
    file.write_bytes(b"GGUF, longer")
    os.utime(file, ns=(stamp, stamp))
    assert len({before, touched, file_identity(file)}) == 3
    copy = file.with_name("copy.gguf")
    copy.write_bytes(file.read_bytes())
    os.utime(copy, ns=(stamp, stamp))
    assert file_identity(copy) != file_identity(file)
    odd = file.rename(file.with_name(os.fsdecode(b"odd-\xff.gguf")))
    assert file_identity(odd).startswith("seen ")


def test_a_file_of_the_store_is_its_sha256_wherever_the_store_is(tmp_path: Path) -> None:
    name = "0123456789abcdef" * 4
    for place in ("here", "there"):
        (tmp_path / place / "blobs").mkdir(parents=True)
        (tmp_path / place / "blobs" / name).write_bytes(place.encode())
    here, there = (tmp_path / place / "blobs" / name for place in ("here", "there"))
    assert file_identity(here) == file_identity(there) == f"sha256 {name}"
    link = tmp_path / "model.gguf"
    link.symlink_to(here)
    assert file_identity(link) == f"sha256 {name}"
