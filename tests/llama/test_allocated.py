"""llama.cpp's log, read for what it allocated."""

import pytest

from localspec.llama import allocated as module
from localspec.llama.allocated import RAM, allocated, together
from localspec.llama.devices import Device
from localspec.resources import Usage

MIB = 1 << 20
LINES = """\
load_tensors:   CPU_Mapped model buffer size =    28.50 MiB
load_tensors:        CUDA0 model buffer size =     4.00 MiB
load_tensors: RPC0[10.0.0.2:50052] model buffer size =     2.00 MiB......
load_tensors: RPC1[10.0.0.2:50052] model buffer size =     1.00 MiB
load_tensors: RPC0[10.0.0.3:50052] model buffer size =     0.50 MiB
llama_context:  CUDA_Host  output buffer size =     0.25 MiB
llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB
llama_memory_recurrent:        CPU RS buffer size =     3.00 MiB
sched_reserve:      CUDA0 compute buffer size =    16.00 MiB
sched_reserve:  CUDA_Host compute buffer size =     5.00 MiB
sched_reserve: graph: nodes = 936, splits = 2
"""


def device(name: str, description: str) -> Device:
    return Device(name, description, 1, 1, "GPU", 0)


def test_buffers_are_counted_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [device("CUDA0", "card"), device("RPC0", "10.0.0.2:50052")]
    known += [device("RPC1", "10.0.0.2:50052"), device("RPC2", "10.0.0.3:50052")]
    monkeypatch.setattr(module, "log_lines", LINES.splitlines)
    monkeypatch.setattr(module, "devices", lambda: known)
    found = allocated()
    assert found == {
        RAM: Usage(int(28.5 * MIB), 3 * MIB, 5 * MIB, MIB // 4),
        "CUDA0": Usage(4 * MIB, 8 * MIB, 16 * MIB),
        "RPC0": Usage(2 * MIB),
        "RPC1": Usage(1 * MIB),
        "RPC2": Usage(MIB // 2),
    }
    twice = together([found, found])
    assert twice["CUDA0"].total_bytes == 56 * MIB
