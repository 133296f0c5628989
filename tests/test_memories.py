"""The memories of a machine: how large and how fast they are."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.models.entries import ModelEntry
from localspec.models.registry import load_registry
from localspec.options import LoadOptions
from localspec.plan.recommend import ON_A_CPU, best
from localspec.session import memories as memories_module


def test_copying_memory_says_at_once_how_fast_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories_module, "_COPIED_BYTES", 1 << 20)
    assert 1e7 < memories_module.copied_per_second(2) < 1e14
    of_thread = memories_module._COPIES * memories_module._COPIED_BYTES
    two = memories_module._FREE_SHARE * 2 * 2 * memories_module._COPIED_BYTES
    for free, threads, count in ((None, 3, 3), (two, 1, 1), (two, 64, 2), (0, 2, 1)):
        own = threading.local()

        def clock(own: threading.local = own) -> float:
            own.now_s = getattr(own, "now_s", 0.0) + 2
            return float(own.now_s)

        with monkeypatch.context() as patched:
            patched.setattr(memories_module, "free_ram_bytes", lambda free=free: free)
            patched.setattr(time, "thread_time", clock)
            speed = memories_module.copied_per_second(threads)
        assert speed == count * of_thread / 2, "all bytes over the time of all, by the median"


def test_other_programs_turns_do_not_make_memory_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories_module, "_COPIED_BYTES", 8 << 20)
    copyto = np.copyto
    alone = memories_module.copied_per_second(1)

    def interrupted(to: Any, source: Any) -> None:
        copyto(to, source)
        time.sleep(0.05)  # ten times as long as it takes

    monkeypatch.setattr(np, "copyto", interrupted)
    assert memories_module.copied_per_second(1) > alone / 3


def test_how_fast_a_memory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    gpu = SimpleNamespace(name="GPU", total_bytes=4 << 30, free_bytes=3 << 30, shares_ram=False)
    monkeypatch.setattr(memories_module, "placed_on", lambda _: [gpu])
    monkeypatch.setattr(memories_module, "usable_ram_bytes", lambda: 8 << 30)
    free = iter((7 << 30, 1 << 30, 5 << 30, 5 << 30))
    monkeypatch.setattr(memories_module, "free_ram_bytes", lambda: next(free))
    monkeypatch.setattr(memories_module, "offloads", lambda _: True)
    passes = iter((1.0, 5.0))
    monkeypatch.setattr(memories_module, "copied_per_second", lambda _: next(passes))
    entry = ModelEntry("measured", 1_000_000_000, "0" * 64)
    item = SimpleNamespace(path=Path("x"), entry=entry)
    monkeypatch.setattr(memories_module, "inventory", lambda *_: [item])
    sure = False

    def costs(_: Path, options: LoadOptions, __: Role) -> StoredCosts:
        step_s = 0.5e9 if options.gpu_layers == 0 else 1e9 / 9
        return StoredCosts(PassCosts((1,), (step_s,)), doubts=0 if sure else 1)

    monkeypatch.setattr(memories_module, "stored_costs", costs)
    found = memories_module.memories(load_registry())
    assert [(each.name, each.bytes_per_s) for each in found] == [("GPU", 9.0), ("RAM", 2.0)]
    assert [each.total_bytes for each in found] == [4 << 30, 8 << 30]
    assert [each.free_bytes for each in found] == [3 << 30, 7 << 30]
    # Within the hour nothing is measured again, and what is free changes nothing else.
    again = memories_module.memories(load_registry())
    assert [replace(each, free_bytes=None) for each in again] == [
        replace(each, free_bytes=None) for each in found
    ]
    gpu.shares_ram, gpu.total_bytes = True, 16 << 30
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    ram_too, ram = memories_module.memories(load_registry())
    assert (ram_too.total_bytes, ram_too.most) == (ram.total_bytes, ram.most)
    # Copying is faster than passes beside other programs, and what wide ones cost is taken from another machine.
    assert (ram.bytes_per_s, ram.passes, ram.usual) == (5.0, {}, ON_A_CPU)
    assert (ram_too.usual, ram_too.is_usual_measured) == (None, False)
    # What was measured quiet counts alone, and is said of that model.
    sure = True
    monkeypatch.setattr(time, "time", lambda: now + 7300)
    ram = memories_module.memories(load_registry())[-1]
    costs_of_entry = PassCosts((1,), (0.5e9,))
    assert (ram.bytes_per_s, ram.passes) == (2.0, {entry.sha256: costs_of_entry})
    assert (ram.usual, ram.is_usual_measured) == (costs_of_entry, True)
    measured = best("measured", entry, [ram])
    assert measured is not None
    assert measured.is_measured
    assert measured.tokens_per_s == 2e-9
