"""KeptPrefixes: what sequences have evaluated outlives the process, so that a server that starts again knows it."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from localspec.chat.events import Event
from localspec.llama.sequence import LlamaSequence
from localspec.llama.state import StateUnfitError, restore_state, save_state, size_of_state
from localspec.storage.files import private_directory

MOST_STATES = 8
"""Of one model."""
MOST_BYTES = 1 << 30
"""Of all models together."""
_WORTH_KEEPING = 64
"""Tokens that take longer to evaluate than to read."""


class KeptPrefixes:
    """Puts back what the sequences of a model had evaluated, and writes it down when the models are closed.

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
        for sequence, path in zip(sequences, sorted(self._shelf.glob("[0-9]")), strict=False):
            with suppress(StateUnfitError):
                restore_state(sequence, path, identity)
        self._restored = [each.cached for each in sequences]

    def begin(self, *_: object) -> Callable[[Event], None]:
        """See nothing of a reply; see `Observer`."""
        return lambda _event: None

    def close(self) -> None:
        """Write down what was evaluated, the longest first, in place of what was there."""
        if self._closed or self._restored == [each.cached for each in self._sequences]:
            return
        self._closed = True
        with suppress(OSError):
            private_directory(self._shelf)
            written = {str(number) for number in self._write()}
            for each in self._shelf.iterdir():
                if each.name not in written:
                    shutil.rmtree(each, ignore_errors=True)
        self._make_room()

    def _write(self) -> Iterator[int]:
        """Write the states; yield the numbers of those that are there."""
        left = MOST_BYTES
        for number, sequence in enumerate(self._worth_keeping()):
            left -= size_of_state(sequence)
            if left < 0:
                return
            with suppress(StateUnfitError):
                path = self._shelf / str(number)
                save_state(sequence, path, self._identity, {}, beside=True)
                yield number

    def _worth_keeping(self) -> list[LlamaSequence]:
        """Return the sequences that hold most; of a text that two of them hold, one."""
        chosen: list[LlamaSequence] = []
        for each in sorted(self._sequences, key=lambda each: -each.n_cached):
            known = max((_shared(each, other) for other in chosen), default=0)
            if each.n_cached - known >= _WORTH_KEEPING:
                chosen.append(each)
        return chosen[:MOST_STATES]

    def _make_room(self) -> None:
        """Remove what other models left, the oldest first, until all of it is within bounds."""
        with suppress(OSError):
            shelves = sorted(self._directory.iterdir(), key=lambda each: each.stat().st_mtime)
            sizes = {each: sum(_sizes(each)) for each in shelves}
            for each in shelves:
                if each != self._shelf and sum(sizes.values()) > MOST_BYTES:
                    shutil.rmtree(each, ignore_errors=True)
                    del sizes[each]


def _shared(one: LlamaSequence, other: LlamaSequence) -> int:
    return LlamaSequence.common_prefix(other, one.cached)


def _sizes(directory: Path) -> Iterator[int]:
    return (each.stat().st_size for each in directory.rglob("*") if each.is_file())
