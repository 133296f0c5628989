"""Examines a machine: facts about software, hardware, files, settings and the network, and which of them are broken.

Leaves nothing changed and reveals no secret.
"""

import os
import platform
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from localspec import __version__
from localspec.calibration.calibrated import (
    StoredCosts,
    stored_costs,
    stored_reading,
    stored_widths,
)
from localspec.config.files import read_setting, user_file
from localspec.config.keys import KEYS, as_written
from localspec.config.recorded import kept_megabytes, recording, telemetry_dir
from localspec.config.resolve import Level, resolve
from localspec.decoding.drafters.register import keeping
from localspec.decoding.model import Role
from localspec.entry_points import of_others
from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.llama.backend import build
from localspec.llama.devices import Device, devices
from localspec.llama.safe_widths import SafeWidths
from localspec.llama.selection import chosen
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import SHA256, ModelEntry, files_of
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.hub import plain_client
from localspec.models.inventory import inventory
from localspec.models.names import look_up
from localspec.models.registry import Registry, load_registry
from localspec.models.requested import named_models
from localspec.models.store import Store, sha256_of
from localspec.models.transfer import RemoteFile, SourceFailedError
from localspec.options import LaunchOptions, LoadOptions, changed
from localspec.plan.facts import encoder_facts, free_memory
from localspec.plan.fit import forecast
from localspec.resources import (
    default_threads,
    free_ram_bytes,
    limits,
    processor_features,
    processor_name,
)
from localspec.setup.plan import decide, find_gpus
from localspec.storage import database
from localspec.storage.files import size_text
from localspec.storage.network import is_hub_variable_ours
from localspec.storage.paths import data_dir, shown
from localspec.storage.read_store import held
from localspec.telemetry.log import size_bytes
from localspec.toolbox.command import confinement

State = Literal["ok", "note", "warning", "broken"]

_DEADLINE_S = 5.0
_VARIABLES = ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTPS_PROXY", "HTTP_PROXY")
_WIDE = 16


class Fact(NamedTuple):
    """One thing about this machine.

    Args:
        name: of the thing.
        value: in words.
        state: `note` is worth knowing; with a `warning`, such as no network, something does not work; `broken` needs mending.
    """

    name: str
    value: str
    state: State = "ok"


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
    found = {name: facts for name, section in sections.items() if (facts := gather(section))}
    seen: dict[str, str] = {}
    for name, facts in found.items():
        found[name] = [_unrepeated(each, name, seen) for each in facts]
    return found


def _unrepeated(fact: Fact, section: str, seen: dict[str, str]) -> Fact:
    """Return a fact; of a failure that an earlier section has, that it is the same. `seen` are sections by the failure."""
    if fact.state != "broken" or (first := seen.setdefault(fact.value, section)) == section:
        return fact
    return fact._replace(value=f"for the reason under {first}")


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
    yield Fact("compiled with", used.features_text)
    if added := of_others():
        yield Fact("plug-ins", ", ".join(added), "note")
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
    for limit in limits():
        yield Fact("limit", limit)
    for device in devices:
        text = device.description
        if device.is_gpu:
            text += f", {size_text(device.free_bytes)} of {size_text(device.total_bytes)} free"
        yield Fact(f"device {device.name}", text)


def gpu_build() -> Iterator[Fact]:
    """Yield which GPUs are there, which build is used, and what `localspec setup` would do."""
    used, machine, made = build(), find_gpus(), chosen()
    for backend, each in machine.items():
        if each.gpus:
            yield Fact(backend, ", ".join(each.gpus))
    if made is not None and made != used.folder:
        problem = "is not used: it does not load, or is of another version; run localspec setup"
        yield Fact("chosen", f"{shown(made)} {problem}", "warning")
    elif made is not None:
        yield Fact("chosen", shown(made))
    plan = decide(machine, used.backends, is_made=made is not None)
    if plan.backend is None:
        yield Fact("setup", plan.reason)
    else:
        first = f"first install {', '.join(plan.lacks)}; then " if plan.lacks else ""
        yield Fact("setup", f"{plan.reason} is not used: {first}run localspec setup", "note")


def files() -> Iterator[Fact]:
    """Yield where files are, and how much room there is."""
    data = data_dir()
    yield Fact("data", f"{shown(data)} ({size_text(shutil.disk_usage(data).free)} free)")
    if not os.access(data, os.W_OK):
        yield Fact("data", "cannot be written to: fix its permissions", "broken")
    else:
        yield tried(data)
        yield from damaged(data)
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    yield Fact("hub cache", shown(os.environ.get("HF_HUB_CACHE") or home / "hub"))
    switch = recording()
    kinds = "counts, times and text" if switch and switch.text else "counts and times"
    kind = kinds if switch else "off"
    bounds = f" of {switch.megabytes} MB, kept for {switch.days} days" if switch else ""
    yield Fact("telemetry", f"{kind}: {size_text(size_bytes(telemetry_dir()))}{bounds}")
    size, models = held(data / "reads")
    of = f", of {models} loaded model{'s' * (models != 1)}" if models else ""
    yield Fact("prompt cache", f"{size_text(size)}{of}")
    for entry in keeping():
        state = "off" if kept_megabytes(entry.setting) is None else "on"
        try:
            amount = entry.kept.amount(data)
            yield Fact(entry.name, f"{state}: {amount}" if amount else state)
        except OSError as error:
            wipe, path = "`localspec stats --wipe` removes it", Path(error.filename)
            advice = database.remedy(error.__cause__ or error, path, wipe)
            yield Fact(entry.name, f"{shown(path)}: {error.strerror}: {advice}", "broken")
    file = user_file()
    yield Fact("user settings", shown(file) + ("" if file.exists() else " (does not exist)"))


def tried(data: Path) -> Fact:
    """Return whether a database works in a directory: one is made, locked, written, read back and removed."""
    steps, rows = ("CREATE TABLE tried(text)",), [("kept",)]
    try:
        with TemporaryDirectory(prefix=".doctor-", dir=data) as place:
            path = Path(place) / "tried.db"
            with closing(database.open_database(path, steps)) as file, database.transaction(file):
                file.executemany("INSERT INTO tried VALUES (?)", rows)
            with closing(database.open_database(path, steps)) as file:
                read = [tuple(row) for row in file.execute("SELECT text FROM tried")]
    except (OSError, sqlite3.Error) as error:
        advice = database.remedy(error, data / "its", "check its disk")
        return Fact(
            "databases", f"cannot be kept ({database.reason_of(error)}): {advice}", "broken"
        )
    if read != rows:
        return Fact("databases", "do not keep what is written: check the disk", "broken")
    if database.shares_memory(data):
        return Fact("databases", "work")
    text = (
        "work, without shared memory, which this file system refuses: programs wait for each other"
    )
    return Fact("databases", text, "note")


def damaged(data: Path) -> Iterator[Fact]:
    """Yield the databases of a data directory that are damaged, as far as each is looked through in a second."""
    for path in sorted(data.glob("*/*.db")):
        if (reason := database.damage_of(path, 1.0)) is not None:
            advice = "localspec cannot use it: move it away to start again"
            yield Fact("database", f"{shown(path)} is damaged ({reason}): {advice}", "broken")


def settings() -> Iterator[Fact]:
    """Yield every setting that is not a default."""
    changes = [(n, each) for n, each in resolve({}).items() if each.origin.level > Level.DEFAULT]
    for name, each in changes:
        yield Fact(name, f"{as_written(KEYS[name], each.value)} ({each.origin})")
    if not changes:
        yield Fact("all", "defaults")
    registry = load_registry()
    yield Fact("registry", f"{len(registry.models)} models, {len(registry.pairs)} pairs")


def network(*, offline: bool, deadline_s: float = _DEADLINE_S) -> Iterator[Fact]:
    """Yield the hub's variables, and whether it answers.

    Args:
        offline: use no network.
        deadline_s: how long to wait for its answer at most.
    """
    for name in _VARIABLES:
        is_ours = name == "HF_HUB_OFFLINE" and is_hub_variable_ours()
        is_set = not is_ours and (os.environ.get(name) or os.environ.get(name.lower()))
        yield Fact(name, "set" if is_set else "not set")
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(endpoint)
    name = f"hub {parts.hostname}"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        text = "HF_ENDPOINT is not an address: unset it, or start it with https://"
        yield Fact("hub", text, "broken")
    elif offline:
        yield Fact(name, f"not checked, {_why_offline()}", "note")
    elif (os.environ.get("HF_HUB_OFFLINE") or "0").lower() not in {"0", "false", "no", "off"}:
        yield Fact(name, "not checked, HF_HUB_OFFLINE", "note")
    else:
        problem = _problem_of_hub(f"{endpoint.rstrip('/')}/api/models?limit=1", deadline_s)
        text = f"does not answer ({problem}); models on this machine work" if problem else "answers"
        yield Fact(name, text, "warning" if problem else "ok")


def _why_offline() -> str:
    try:
        read_setting(user_file(), "offline")
    except UsageError:
        return "your settings cannot be read"
    return "offline"


def _problem_of_hub(url: str, deadline_s: float) -> str | None:
    """Return what is wrong with the hub; None if nothing. No token is sent."""
    try:
        with RemoteFile(plain_client(), url, answer_s=deadline_s).open(0):
            return None
    except SourceFailedError as error:
        return str(error)
    except Exception:  # a proxy's address that is none; the error's text may hold its password
        return "the proxy that is set cannot be used"


def store(
    root: Path, *, verify: bool, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Fact]:
    """Yield what is wrong with the stored files, and how many there are.

    Args:
        root: the data directory.
        verify: read every file and compare its sha256 with its name.
        progress: called with the name of a file that is about to be read.
    """
    blobs = root / "blobs"
    stored = sorted(blobs.iterdir()) if blobs.is_dir() else []
    models = load_registry().models.values()
    sizes = {file.sha256: file.size_bytes for model in models for file in files_of(model)}
    total = 0
    for file in stored:
        problem = _problem_of_file(file, sizes.get(file.name))
        if problem is None and verify:
            progress(file.name)
            try:
                actual = sha256_of(file)
                other = f"holds other bytes, of sha256 {actual[:12]}…"
                problem = None if actual == file.name else other
            except OSError as error:
                problem = f"cannot be read ({error.strerror})"
        if problem is None:
            total += file.stat().st_size
        else:
            advice = f"remove {shown(file)}, and pull the model again"
            yield Fact(file.name[:12], f"{problem}: {advice}", "broken")
    how = "re-hashed" if verify else "sizes checked; --verify also hashes"
    yield Fact("model files", f"{len(stored)}, {size_text(total)} ({how})")


def _problem_of_file(file: Path, promised: int | None) -> str | None:
    if not re.fullmatch(SHA256, file.name):
        return "is not named by a sha256"
    if not file.exists():  # a link into a cache that was emptied
        return f"points at {shown(file.readlink())}, which is gone"
    if not file.is_file():
        return "is not a file"
    size = file.stat().st_size
    if promised is not None and size != promised:
        return f"has {size} bytes instead of {promised}"
    return None


def memory(root: Path, values: Mapping[str, Any] | None = None) -> Iterator[Fact]:
    """Yield where the models go that a run without flags loads, and what they take there.

    Args:
        root: the data directory.
        values: of the settings, by their names; by default those in force.
    """
    # Few of what is examined is a plan.
    from localspec.models.shape import model_shape  # noqa: PLC0415 - as above
    from localspec.plan.decide import encoder_plan  # noqa: PLC0415
    from localspec.plan.load_plan import EncoderFile  # noqa: PLC0415 - as above

    registry = load_registry()
    try:
        values = values or {name: each.value for name, each in resolve({}).items()}
    except UsageError:  # a fact of the settings
        return
    request = changed(LaunchOptions(), values)
    if request.workers:  # a worker serves one program at a time
        text = f"known at loading, when {', '.join(request.workers)} will report what is free"
        yield Fact("workers", text)
        return
    target, draft_model = named_models(request, registry)
    model, header = _header(target, registry, root)
    if header is None:
        yield Fact(target, "not on this machine; `localspec pull` shows it before it downloads")
        return
    small = None if draft_model is None else _header(draft_model, registry, root)[1]
    options, free = request.target_load, free_memory()
    try:
        file = encoder_facts(request, model, header)
        encoder = encoder_plan(file, request, model_shape(header), free)
    except LocalspecError as error:
        yield Fact("mmproj", str(error), "warning")
        encoder = EncoderFile()
    draft_options = free.draft_load(request, options)
    outlook = forecast(header, small, options, draft_options, free, encoder.size)
    name = target if small is None else f"{target} with {draft_model}"
    yield from (Fact(name, line) for line in (*outlook.lines, *encoder.notes))
    yield from (Fact(name, problem, "warning") for problem in outlook.problems)


def _header(
    reference: str, registry: Registry, root: Path
) -> tuple[ModelEntry | Path, GgufHeader | None]:
    """Return a model, and its header; None where it is not here."""
    try:
        model = look_up(reference, registry, offline=True)
    except ModelUnavailable:
        return Path(reference), None
    path = model if isinstance(model, Path) else Store(root).path_of(model)
    return model, None if path is None else replace(read_model(path), name=reference)


def _exact_widths(exact: SafeWidths) -> str:
    """Return in words which passes change no bit."""
    if exact.fixed:
        return f"passes of {exact.fixed} to {exact.most} tokens are exact, and none is narrower"
    if exact.longest == 1:
        return "nothing is drafted: passes of two tokens round otherwise than those of one"
    text, worst = ", ".join(map(str, exact.widths)), max(exact.differences.values(), default=0.0)
    off = f", other widths are off by up to {worst:.2g}" if exact.differences else ""
    return f"passes of {text} tokens are exact{off}"


def speed(
    root: Path,
    costs: Callable[[Path, LoadOptions, Role], StoredCosts | None] = stored_costs,
    widths: Callable[[Path, LoadOptions], SafeWidths | None] = stored_widths,
    reading: Callable[[Path, LoadOptions], StoredCosts | None] = stored_reading,
) -> Iterator[Fact]:
    """Yield, of each model in the store, what its passes cost and which widths are exact.

    Args:
        root: the data directory.
        costs: returns the measured costs of a file's passes.
        widths: returns the widths that change no bit.
        reading: returns the measured costs of its prompts.
    """
    usual = LoadOptions()
    for item in inventory(load_registry(), Store(root)):
        if item.path is None:
            continue
        parts, doubtful = [], False
        if target := costs(item.path, usual, Role.TARGET):
            wide = f"{1000 * target.costs.of(_WIDE):.0f} ms for {_WIDE} at once"
            parts.append(f"{1000 * target.costs.of(1):.1f} ms per token, {wide}")
            doubtful = not target.sure
        ways = ((each, reading(item.path, each)) for each in (usual, usual.plain()))
        chunks = ((way.chunk(on_gpu=False), each) for way, each in ways if each)
        if rates := [chunk / each.costs.of(chunk) for chunk, each in chunks]:
            parts.append(f"reads {max(rates):.0f} tokens/s, by the faster of two copies")
        if draft := costs(item.path, usual, Role.DRAFT_MODEL):
            doubtful = doubtful or not draft.sure
            parts.append(f"{1000 * draft.costs.of(1):.1f} ms per token as draft model")
        if exact := widths(item.path, usual.exact()):
            parts.append(f"with --exact, {_exact_widths(exact)}")
        if doubtful:
            parts.append(
                "measured while the machine was busy: the next start on a quiet one measures again"
            )
        missing = "not measured yet: the first run measures it, and the first --exact run its own"
        yield Fact(item.name, "; ".join(parts) or missing, "note" if doubtful else "ok")
