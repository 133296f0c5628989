"""Facts about the machine: software, hardware, builds for its GPU, network; and `examine`, which lists all facts."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from localspec import __version__
from localspec.diagnosis import Fact
from localspec.diagnosis.files import files, memory, settings, speed, store
from localspec.errors import LocalspecError
from localspec.llama.backend import build
from localspec.llama.chosen import chosen
from localspec.llama.devices import Device, devices
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.hub import plain_client
from localspec.models.transfer import line_failure
from localspec.resources import default_threads, free_ram_bytes, processor_features, processor_name
from localspec.setup.gpus import find_gpus
from localspec.setup.plan import decide
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown
from localspec.toolbox.command import confinement

_DEADLINE_S = 5.0
_VARIABLES = ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTPS_PROXY", "HTTP_PROXY")


def examine(
    *, offline: bool, verify: bool, progress: Callable[[str], None]
) -> dict[str, list[Fact]]:
    """Return all facts about this machine, by section.

    Args:
        offline: use no network.
        verify: re-hash every stored model.
        progress: called with the name of a file that is about to be read.
    """
    sections: dict[str, Callable[[], Iterable[Fact]]] = {
        "software": software,
        "hardware": lambda: hardware(devices()),
        "GPU build": gpu_build,
        "files": files,
        "settings": settings,
        "network": lambda: network(offline=offline),
        "store": lambda: store(data_dir(), verify=verify, progress=progress),
        "memory": lambda: memory(data_dir()),
        "speed": lambda: speed(data_dir()),
    }
    return {name: facts for name, section in sections.items() if (facts := gather(section))}


def gather(section: Callable[[], Iterable[Fact]]) -> list[Fact]:
    """Return a section's facts; a failure on the way is one, too."""
    facts: list[Fact] = []
    try:
        facts.extend(section())
    except (LocalspecError, OSError) as error:
        facts.append(Fact("failed", " ".join(str(error).split()), "broken"))
    return facts


def software() -> Iterator[Fact]:
    """Yield versions."""
    used = build()
    yield Fact("localspec", __version__)
    yield Fact("Python", f"{platform.python_version()} ({sys.executable})")
    yield Fact("system", platform.platform())
    yield Fact("llama.cpp", f"llama-cpp-python {used.version}")
    yield Fact("backends", ", ".join(used.backends))
    # llama.cpp lists `CPU : SSE3 = 1`, `AVX = 1`, …, `CUDA : ARCHS = 890`.
    words = [f"{each} ".replace(" = 1 ", "").strip() for each in used.features]
    yield Fact("compiled with", ", ".join(words).replace(" : ", ": ").replace(" = ", " "))
    text, holds = confinement()
    yield Fact("run_command", text, "ok" if holds else "note")


def hardware(devices: list[Device]) -> Iterator[Fact]:
    """Yield processor, memory and devices.

    Args:
        devices: of this build of llama.cpp.
    """
    yield Fact("CPU", processor_name())
    yield Fact("CPU features", ", ".join(processor_features()) or "unknown")
    yield Fact("threads", f"{default_threads()} (physical cores available to this process)")
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        text = f"using {others[0]:.1f} of {others[1]} cores; expect slower answers"
        yield Fact("other programs", text, "note")
    free = free_ram_bytes()
    if free is None:
        yield Fact("free RAM", "unknown: localspec cannot plan for memory", "note")
    else:
        yield Fact("free RAM", size_text(free))
    for device in devices:
        text = device.description
        if device.is_gpu:
            text += f", {size_text(device.free_bytes)} of {size_text(device.total_bytes)} free"
        yield Fact(f"device {device.name}", text)


def gpu_build() -> Iterator[Fact]:
    """Yield which GPUs are there, which build is used, and what `localspec setup` would do."""
    used, machine, beside = build(), find_gpus(), chosen()
    for backend, each in machine.items():
        if each.gpus:
            yield Fact(backend, ", ".join(each.gpus))
    if beside is not None and beside != used.folder:
        problem = "is not used: it does not load, or is of another version; run localspec setup"
        yield Fact("chosen", f"{shown(beside)} {problem}", "warning")
    elif beside is not None:
        yield Fact("chosen", shown(beside))
    plan = decide(machine, used.backends, beside=beside is not None)
    if plan.backend is None:
        yield Fact("setup", plan.reason)
    else:
        first = f"first install {', '.join(plan.lacks)}; then " if plan.lacks else ""
        yield Fact("setup", f"{plan.reason} is not used: {first}run localspec setup", "note")


def network(*, offline: bool, deadline_s: float = _DEADLINE_S) -> Iterator[Fact]:
    """Yield the hub's variables, and whether it answers.

    Args:
        offline: use no network.
        deadline_s: how long to wait at most, name resolution included.
    """
    for name in _VARIABLES:
        value = "set" if os.environ.get(name) or os.environ.get(name.lower()) else "not set"
        yield Fact(name, value)
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(endpoint)
    name = f"hub {parts.hostname}"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        text = "HF_ENDPOINT is not an address: unset it, or start it with https://"
        yield Fact("hub", text, "broken")
    elif offline:
        yield Fact(name, "not checked, offline", "note")
    elif (os.environ.get("HF_HUB_OFFLINE") or "0").lower() not in {"0", "false", "no", "off"}:
        yield Fact(name, "not checked, HF_HUB_OFFLINE", "note")
    else:
        problem = _problem_of_hub(f"{endpoint.rstrip('/')}/api/models?limit=1", deadline_s)
        if problem is None:
            yield Fact(name, "answers")
        else:
            yield Fact(name, f"{problem}; models on this machine work", "warning")


def _problem_of_hub(url: str, deadline_s: float) -> str | None:
    """Return what is wrong with the hub; None if nothing. No token is sent."""

    def request() -> tuple[int, str]:
        with (
            plain_client() as client,
            client.stream("GET", url, timeout=deadline_s, follow_redirects=True) as answer,
        ):
            return answer.status_code, answer.headers.get("content-type", "").partition(";")[0]

    try:
        status, kind = request()
    except (
        Exception
    ) as error:  # of whichever client huggingface_hub uses; others may name a proxy's password
        known = type(error).__name__ == "ConnectError"
        return f"cannot be reached ({error if known else line_failure(error)})"
    if status >= 400:
        return f"answers HTTP {status}"
    if kind != "application/json":
        return f"something answers {kind} in its place: sign in to this network first?"
    return None
