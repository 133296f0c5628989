"""Plug-in: devices of other machines, lent and used over llama.cpp's RPC.

Touches: llama.cpp's list of devices in its process, sockets.
Page: docs/gpu.md.
Deleted: `worker` goes, and `--workers` is refused.
"""

from localspec.api import EngineEntry, Verb

VERB = Verb(
    "Serve",
    "Let another machine use this one's devices.",
    "localspec.plugins.workers.command:worker",
    60,
)
ENGINE = EngineEntry(
    "localspec.launch.child",  # as usual, but apart: llama.cpp ends a process whose worker goes away
    check="localspec.plugins.workers.handshake:workers_in",
    prepare="localspec.plugins.workers.rpc:use_workers",
)
