"""KeptPrefixes: what was evaluated outlives its sequence, and the process: as files, which are read where a prompt begins alike."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from localspec.calibration.key import file_identity
from localspec.llama.sequence import LlamaSequence
from localspec.llama.state import (
    StateUnfitError,
    extra_of_state,
    restore_state,
    save_state,
    size_of_state,
)
from localspec.storage.files import private_directory, write_atomic
from localspec.storage.paths import data_dir

MOST_STATES = 8
"""Of one model."""
MOST_BYTES = 1 << 30
"""Of all models together; and as many are written in an hour, whoever asks for what: a disk wears out by being written."""
_WORTH_KEEPING = 64
"""Tokens that take longer to evaluate than to write or to read."""
_LEDGER = "written"
_HOUR_S = 3600.0


class KeptPrefixes:
    """Files of what the sequences of a model had evaluated.

    Nothing here ever fails: what is damaged, of something else, or too large is left out.

    Args:
        directory: holds a directory for each model.
        sequences: of the model.
        identity: what the model is.
    """

    def __init__(self, directory: Path, sequences: Sequence[LlamaSequence], identity: str) -> None:
        self._directory = directory
        self._shelf = directory / hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        self._sequences = sequences
        self._identity = identity
        self._closed = False
        # The one that was of use last is the last.
        self._states: dict[Path, tuple[int, ...]] = dict(self._found())

    def ready(self, slot: int, tokens: Sequence[int]) -> None:
        """Prepare a sequence for a prompt: what it would lose is written, and what is known of the prompt is read.

        Args:
            slot: of the sequence.
            tokens: ids of the prompt.
        """
        sequence, tokens = self._sequences[slot], tuple(tokens)
        if 2 * LlamaSequence.common_prefix(sequence, tokens) < sequence.n_cached:
            self._keep(sequence)
        known = sequence.common_prefix(tokens)
        shared = {path: common(held, tokens) for path, held in self._states.items()}
        path = max(shared, key=lambda each: shared[each], default=None)
        if path is None or shared[path] - known < _WORTH_KEEPING:
            return
        held = self._states.pop(path)
        try:
            restore_state(sequence, path, self._identity)
        except StateUnfitError:
            shutil.rmtree(path, ignore_errors=True)
        else:
            self._states[path] = held
            with suppress(OSError):
                path.touch()

    def close(self) -> None:
        """Write what the sequences hold; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for each in sorted(self._sequences, key=lambda each: each.n_cached):
            self._keep(each)
        self._make_room()

    def _found(self) -> Iterator[tuple[Path, tuple[int, ...]]]:
        """Yield what is there, the oldest first, and remove what is of no use."""
        with suppress(OSError):
            for path in sorted(self._shelf.iterdir(), key=lambda each: each.stat().st_mtime):
                try:
                    tokens = extra_of_state(self._sequences[0], path, self._identity)["tokens"]
                    yield path, tuple(map(int, tokens))
                except (StateUnfitError, LookupError, TypeError, ValueError):
                    shutil.rmtree(path, ignore_errors=True)

    def _keep(self, sequence: LlamaSequence) -> None:
        """Write what a sequence holds, unless there is as much already, in place of shorter beginnings of it."""
        tokens = sequence.cached
        shared = {path: common(held, tokens) for path, held in self._states.items()}
        if len(tokens) - max(shared.values(), default=0) < _WORTH_KEEPING:
            return
        size = size_of_state(sequence)
        written = self._written()
        if written + size > MOST_BYTES:
            return
        beginnings = [path for path, held in self._states.items() if shared[path] == len(held)]
        others = [path for path in self._states if path not in beginnings]
        for path in [*beginnings, *others[: max(0, len(others) + 1 - MOST_STATES)]]:
            self._drop(path)
        while self._states and size + sum(map(_size, self._states)) > MOST_BYTES:
            self._drop(next(iter(self._states)))
        names = {path.name for path in self._states}
        path = self._shelf / next(str(n) for n in range(MOST_STATES) if str(n) not in names)
        with suppress(OSError, StateUnfitError):
            private_directory(self._shelf)
            write_atomic(self._directory / _LEDGER, str(round(written + size)).encode())
            save_state(sequence, path, self._identity, {"tokens": tokens}, beside=True)
            self._states[path] = tokens

    def _written(self) -> float:
        """Return how many of the bytes that were written still count: an hour pays off `MOST_BYTES` of them.

        All processes share the file, whose own time says since when. A clock that is set to another time pays, too.
        """
        ledger = self._directory / _LEDGER
        try:
            passed_s = abs(time.time() - ledger.stat().st_mtime)
            return max(0.0, int(ledger.read_text()) - passed_s * MOST_BYTES / _HOUR_S)
        except (OSError, ValueError):
            return 0.0

    def _drop(self, path: Path) -> None:
        del self._states[path]
        shutil.rmtree(path, ignore_errors=True)

    def _make_room(self) -> None:
        """Remove what other models left, the oldest first, until all of it is within bounds."""
        with suppress(OSError):
            shelves = [each for each in self._directory.iterdir() if each.is_dir()]
            shelves.sort(key=lambda each: each.stat().st_mtime)
            sizes = {each: _size(each) for each in shelves}
            for each in shelves:
                if each != self._shelf and sum(sizes.values()) > MOST_BYTES:
                    shutil.rmtree(each, ignore_errors=True)
                    del sizes[each]


def keeper(target: Path) -> Callable[[Sequence[LlamaSequence]], KeptPrefixes]:
    """Return what makes the files of a model's sequences, in the usual place."""
    directory, identity = data_dir() / "prefixes", file_identity(target)
    return lambda sequences: KeptPrefixes(directory, sequences, identity)


def common(some: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two texts begin with that are the same."""
    shorter = min(len(some), len(others))
    if tuple(some[:shorter]) == tuple(others[:shorter]):
        return shorter
    return next(at for at in range(shorter) if some[at] != others[at])


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())
