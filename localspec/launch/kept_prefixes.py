"""KeptPrefixes: what was evaluated outlives its sequence, and the process: as files, which are read where a prompt begins alike."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelChanged
from localspec.llama.sequence import LlamaSequence
from localspec.llama.state import (
    StateCopy,
    StateUnfitError,
    extra_of_state,
    restore_state,
    size_of_state,
    state_copy,
)
from localspec.storage.files import private_directory, write_atomic

MOST_STATES = 8
"""Of one model."""
MOST_BYTES = 1 << 30
"""Of all models together; and as many are written in an hour, whoever asks for what: a disk wears out by being written."""
_WORTH_KEEPING = 64
"""Tokens that take longer to evaluate than to write or to read."""
_LEDGER = "written"
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A state that is on the disk, or on its way there.

    Args:
        tokens: ids of it.
        size: in bytes.
        written: is done as soon as it is on the disk.
        owner: of the sequence that held it; no other's gets it.
    """

    tokens: tuple[int, ...]
    size: int
    written: Future[None]
    owner: str = ""

    def common(self, tokens: Sequence[int], owner: str) -> int:
        """Return how many tokens a text of someone begins with that are the same; none of another's."""
        return common(self.tokens, tokens) if self.owner == owner else 0


class KeptPrefixes:
    """Files of what the sequences of a model had evaluated.

    A sequence waits for nothing but a copy in memory of what it is about to lose: a thread writes it.
    Nothing here ever fails: what is damaged, of something else, or too large is left out.

    Args:
        directory: holds a directory for each model.
        sequences: of the model.
        identity: what the model is.
        check: raises ModelChanged where its file was written over, of which nothing is kept.
    """

    def __init__(
        self,
        directory: Path,
        sequences: Sequence[LlamaSequence],
        identity: str,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._shelf = directory / hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        self._sequences = sequences
        self._identity = identity
        self._check = check
        self._closed = False
        # One thread: files are written and removed in the order in which that was decided.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="localspec-prefixes")
        # The one that was of use last is the last.
        self._states: dict[Path, _State] = dict(self._stored())

    def keep(self, slot: int) -> None:
        """Save what a sequence is about to lose."""
        if not self._sequences[slot].native.copies_wait:
            self._keep(self._sequences[slot])

    def ready(self, slot: int, tokens: Sequence[int]) -> None:
        """Prepare a sequence for a prompt: what it would lose is saved, and what is known of the prompt is read.

        Args:
            slot: of the sequence.
            tokens: ids of the prompt.
        """
        sequence, tokens = self._sequences[slot], tuple(tokens)
        if sequence.native.copies_wait:
            return
        if 2 * LlamaSequence.common_prefix(sequence, tokens) < sequence.n_cached:
            self._keep(sequence)
        known = sequence.common_prefix(tokens)
        shared = self._shared(tokens, sequence.owner)
        path = max(shared, key=lambda each: shared[each], default=None)
        if path is None or shared[path] - known < _WORTH_KEEPING:
            return
        state = self._states.pop(path)
        wait([state.written])
        try:
            restore_state(sequence, path, self._identity)
        except StateUnfitError:
            self._remove(path)
        else:
            self._states[path] = state
            with suppress(OSError):
                path.touch()

    def close(self) -> None:
        """Write what the sequences hold; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for each in sorted(self._sequences, key=lambda each: each.n_cached):
            self._keep(each)
            wait([state.written for state in self._states.values()])  # one copy at a time
        self._disk.shutdown()
        self._make_room()

    def _stored(self) -> Iterator[tuple[Path, _State]]:
        """Yield what is there, the oldest first, and remove what is of no use."""
        done: Future[None] = Future()
        done.set_result(None)
        with suppress(OSError):
            for path in sorted(self._shelf.iterdir(), key=lambda each: each.stat().st_mtime):
                try:
                    said = extra_of_state(self._sequences[0], path, self._identity)
                    tokens, owner = tuple(map(int, said["tokens"])), str(said.get("owner", ""))
                    yield path, _State(tokens, _size(path), done, owner)
                except (StateUnfitError, LookupError, TypeError, ValueError):
                    shutil.rmtree(path, ignore_errors=True)

    def _shared(self, tokens: Sequence[int], owner: str) -> dict[Path, int]:
        """Return how much of someone's text each state begins with."""
        return {path: state.common(tokens, owner) for path, state in self._states.items()}

    def _keep(self, sequence: LlamaSequence) -> None:
        """Have written what a sequence holds, unless there is as much already, in place of shorter beginnings of it."""
        tokens = sequence.cached
        shared = self._shared(tokens, sequence.owner)
        if len(tokens) - max(shared.values(), default=0) < _WORTH_KEEPING:
            return
        size = size_of_state(sequence)
        waiting = sum(each.size for each in self._states.values() if not each.written.done())
        if self._written() + waiting + size > MOST_BYTES:
            return
        try:
            self._check()
            said = {"tokens": tokens, "owner": sequence.owner}
            copy = state_copy(sequence, self._identity, said)
        except (StateUnfitError, ModelChanged):
            return
        beginnings = [
            path
            for path, state in self._states.items()
            if state.owner == sequence.owner and shared[path] == len(state.tokens)
        ]
        others = [path for path in self._states if path not in beginnings]
        for path in [*beginnings, *others[: max(0, len(others) + 1 - MOST_STATES)]]:
            self._remove(path)
        while self._states and size + sum(each.size for each in self._states.values()) > MOST_BYTES:
            self._remove(next(iter(self._states)))
        names = {path.name for path in self._states}
        path = self._shelf / next(str(n) for n in range(MOST_STATES) if str(n) not in names)
        written = self._disk.submit(self._write, copy, path, size)
        self._states[path] = _State(tokens, size, written, sequence.owner)

    def _write(self, copy: StateCopy, path: Path, size: int) -> None:
        with suppress(OSError, StateUnfitError):
            private_directory(self._shelf)
            write_atomic(self._directory / _LEDGER, str(round(self._written() + size)).encode())
            copy.save(path)

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

    def _remove(self, path: Path) -> None:
        self._states.pop(path, None)
        self._disk.submit(shutil.rmtree, path, ignore_errors=True)

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


def common(some: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two texts begin with that are the same."""
    shorter = min(len(some), len(others))
    if tuple(some[:shorter]) == tuple(others[:shorter]):
        return shorter
    return next(at for at in range(shorter) if some[at] != others[at])


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())
