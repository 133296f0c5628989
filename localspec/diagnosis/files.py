"""Facts about files: directories, settings, whether stored models are whole, and what they take in memory and time."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.calibration.calibrated import StoredCosts, stored_costs, stored_widths
from localspec.config.files import user_file
from localspec.config.keys import KEYS, as_written
from localspec.config.resolve import Level, resolve
from localspec.decoding.model import Role
from localspec.diagnosis import Fact
from localspec.errors import ModelUnavailable, UsageError
from localspec.launch.fit import forecast
from localspec.launch.names import named_models
from localspec.launch.recording import recording, store_megabytes, telemetry_dir
from localspec.llama.safe_widths import SafeWidths
from localspec.models.entries import shards_of
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.inventory import inventory
from localspec.models.names import look_up
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store, sha256_of
from localspec.options import LaunchOptions, LoadOptions, changed
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown
from localspec.storage.token_log import FILE, TokenLog
from localspec.telemetry.log import size_bytes

_SHA256 = re.compile(r"[0-9a-f]{64}")
_WIDE = 16


def files() -> Iterator[Fact]:
    """Yield where files are, and how much room there is."""
    data = data_dir()
    yield Fact("data", f"{shown(data)} ({size_text(shutil.disk_usage(data).free)} free)")
    if not os.access(data, os.W_OK):
        yield Fact("data", "cannot be written to: fix its permissions", "broken")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(  # noqa: PTH118 - may hold a `~`
        os.environ.get("HF_HOME") or "~/.cache/huggingface", "hub"
    )
    yield Fact("hub cache", shown(hub))
    switch, store = recording(), TokenLog(data / "store" / FILE)
    size = size_text(size_bytes(telemetry_dir()))
    bounds = f" of {switch.megabytes} MB, kept for {switch.days} days" if switch else ""
    kind = (
        "off" if switch is None else "counts, times and text" if switch.text else "counts and times"
    )
    yield Fact("telemetry", f"{kind}: {size}{bounds}")
    tokens, owners = store.figures()
    on = "off" if store_megabytes() is None else "on"
    yield Fact(
        "store",
        f"{on}: {tokens} tokens of {owners} conversations" if owners else on,
    )
    file = user_file()
    yield Fact("user settings", shown(file) + ("" if file.exists() else " (does not exist)"))


def settings() -> Iterator[Fact]:
    """Yield every setting that is not a default."""
    changes = [(n, each) for n, each in resolve({}).items() if each.origin.level > Level.DEFAULT]
    for name, each in changes:
        yield Fact(name, f"{as_written(KEYS[name], each.value)} ({each.origin})")
    if not changes:
        yield Fact("all", "defaults")
    registry = load_registry()
    yield Fact("registry", f"{len(registry.models)} models, {len(registry.pairs)} pairs")


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
    sizes = {shard.sha256: shard.size_bytes for model in models for shard in shards_of(model)}
    total = 0
    for file in stored:
        problem = _problem(file, sizes.get(file.name))
        if problem is None and verify:
            progress(file.name)
            problem = _other_bytes(file)
        if problem is None:
            total += file.stat().st_size
        else:
            advice = f"remove {shown(file)}, and pull the model again"
            yield Fact(file.name[:12], f"{problem}: {advice}", "broken")
    how = "re-hashed" if verify else "sizes checked; --verify also hashes"
    yield Fact("model files", f"{len(stored)}, {size_text(total)} ({how})")


def _problem(file: Path, promised: int | None) -> str | None:
    if not _SHA256.fullmatch(file.name):
        return "is not named by a sha256"
    if not file.exists():  # a link into a cache that was emptied
        return f"points at {shown(file.readlink())}, which is gone"
    if not file.is_file():
        return "is not a file"
    size = file.stat().st_size
    if promised is not None and size != promised:
        return f"has {size} bytes instead of {promised}"
    return None


def _other_bytes(file: Path) -> str | None:
    try:
        actual = sha256_of(file)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if actual == file.name else f"holds other bytes, of sha256 {actual[:12]}…"


def memory(root: Path, values: Mapping[str, Any] | None = None) -> Iterator[Fact]:
    """Yield where the models go that a run without flags loads, and what they take there.

    Args:
        root: the data directory.
        values: of the settings, by their names; by default those in force.
    """
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
    header = _header(target, registry, root)
    if header is None:
        yield Fact(target, "not on this machine; `localspec pull` shows it before it downloads")
        return
    small = None if draft_model is None else _header(draft_model, registry, root)
    options = request.load.exact() if request.exact else request.load
    outlook = forecast(header, small, options, request.draft_load(options))
    name = target if small is None else f"{target} with {draft_model}"
    for line in outlook.lines:
        yield Fact(name, line)
    for problem in outlook.problems:
        yield Fact(name, problem, "warning")


def _header(reference: str, registry: Registry, root: Path) -> GgufHeader | None:
    try:
        model = look_up(reference, registry, offline=True)
    except ModelUnavailable:
        return None
    path = model if isinstance(model, Path) else Store(root).path_of(model)
    return None if path is None else replace(read_model(path), name=reference)


def speed(
    root: Path,
    costs: Callable[[Path, LoadOptions, Role], StoredCosts | None] = stored_costs,
    widths: Callable[[Path, LoadOptions], SafeWidths | None] = stored_widths,
) -> Iterator[Fact]:
    """Yield, of each model in the store, what its passes cost and which widths are exact.

    Args:
        root: the data directory.
        costs: returns the measured costs of a file's passes.
        widths: returns the widths that change no bit.
    """
    usual = LoadOptions()
    for item in inventory(load_registry(), Store(root)):
        if item.path is None:
            continue
        parts = []
        if target := costs(item.path, usual, Role.TARGET):
            wide = f"{1000 * target.costs.of(_WIDE):.0f} ms for {_WIDE} at once"
            parts.append(f"{1000 * target.costs.of(1):.1f} ms per token, {wide}")
        if draft := costs(item.path, usual, Role.DRAFT_MODEL):
            parts.append(f"{1000 * draft.costs.of(1):.1f} ms per token as draft model")
        if exact := widths(item.path, usual.exact()):
            text = f"with --exact, passes of {', '.join(map(str, exact.widths))} tokens are exact"
            worst = max(exact.differences.values(), default=0.0)
            off = f", other widths are off by up to {worst:.2g}" if exact.differences else ""
            parts.append(text + off)
        missing = "not measured yet: the first run measures it, and the first --exact run its own"
        yield Fact(item.name, "; ".join(parts) or missing)
