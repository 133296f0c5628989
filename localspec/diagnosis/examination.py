"""All facts about this machine, section by section."""

from collections.abc import Callable

from localspec.diagnosis.fact import Fact, gathered
from localspec.diagnosis.files import places, settings, store
from localspec.diagnosis.hub import network
from localspec.diagnosis.machine import gpu_build, hardware, software
from localspec.diagnosis.passes import passes
from localspec.diagnosis.placement import placement
from localspec.llama.build import build
from localspec.llama.devices import devices
from localspec.setup.gpus import find
from localspec.storage.paths import data_dir


def examine(*, offline: bool, verify: bool, progress: Callable[[str], None]) -> list[Fact]:
    """Check this machine.

    Args:
        offline: use no network.
        verify: re-hash every stored model.
        progress: called with the name of a file that is about to be read.
    """
    return [
        *gathered("software", lambda: software(build())),
        *gathered("hardware", lambda: hardware(devices())),
        *gathered("GPU build", lambda: gpu_build(build(), find())),
        *gathered("places", places),
        *gathered("settings", settings),
        *gathered("network", lambda: network(offline=offline)),
        *gathered("store", lambda: store(data_dir(), verify=verify, progress=progress)),
        *gathered("placement", lambda: placement(data_dir())),
        *gathered("passes", lambda: passes(data_dir())),
    ]
