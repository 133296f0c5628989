"""Corpus: conversations with what the target computed of them, on the disk, whole or not at all.

Of each part there are two files: rows of floats, written first, and the conversations, whose name makes the part count. So
whatever is killed leaves the parts before it.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.storage.files import private_directory, write_atomic

TOP = 16
"""Ids of each row that are kept, the likeliest."""
_HALF_MAX = 60_000.0  # some channels of some targets are beyond what 16 bits hold


@dataclass(slots=True, eq=False)
class Talk:
    """A prompt and the target's answer.

    Args:
        key: which prompt it is, see `jobs`.
        kind: of text.
        n_prompt: tokens of the prompt.
        tokens: all of them.
        greedy: whether each token of the answer is the likeliest.
        rows: by token, inputs of the target's layers side by side, as 16-bit floats.
        ids: by token, the likeliest next ones.
        logs: logarithms of their probabilities.
    """

    key: str
    kind: str
    n_prompt: int
    tokens: list[int]
    greedy: bool
    rows: Any = field(default_factory=list)
    ids: Any = field(default_factory=list)
    logs: Any = field(default_factory=list)

    @property
    def is_held_out(self) -> bool:
        """Whether it is never trained on."""
        return self.key.startswith("held:")

    def join(self) -> None:
        """Make arrays of what came in pieces; of the last token nothing was computed."""
        self.rows, self.ids, self.logs = map(np.concatenate, (self.rows, self.ids, self.logs))
        self.tokens = self.tokens[: len(self.ids)]


def halved(rows: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return rows as 16-bit floats, none of them infinite."""
    return rows.clip(-_HALF_MAX, _HALF_MAX).astype(np.float16)


class Corpus:
    """The parts in a folder.

    Args:
        folder: made if it is not there.
        width: floats of a row.
    """

    def __init__(self, folder: Path, width: int) -> None:
        private_directory(folder)
        self._folder, self._width = folder, width

    @property
    def token_bytes(self) -> int:
        """Bytes that a token takes, about."""
        return 2 * self._width + TOP * 6 + 4

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("talks-*.npz"))

    def add(self, talks: Sequence[Talk]) -> None:
        """Write a part.

        Raises:
            OSError: the disk does not take it.
        """
        number = 1 + max((int(each.stem[-5:]) for each in self._parts()), default=0)
        rows, table = io.BytesIO(), io.BytesIO()
        np.save(rows, np.concatenate([each.rows for each in talks]))
        np.savez(
            table,
            keys=np.array([each.key for each in talks]),
            kinds=np.array([each.kind for each in talks]),
            greedy=np.array([each.greedy for each in talks]),
            prompts=np.array([each.n_prompt for each in talks]),
            lengths=np.array([len(each.tokens) for each in talks]),
            tokens=np.concatenate([np.array(each.tokens, np.int32) for each in talks]),
            ids=np.concatenate([each.ids for each in talks]).astype(np.int32),
            logs=np.concatenate([each.logs for each in talks]).astype(np.float16),
        )
        write_atomic(self._folder / f"rows-{number:05}.npy", rows.getvalue())
        write_atomic(self._folder / f"talks-{number:05}.npz", table.getvalue())

    def talks(self) -> Iterator[Talk]:
        """Yield all conversations, in the order in which they came; their rows stay on the disk until they are read."""
        for path in self._parts():
            with np.load(path) as table:
                values = {name: table[name] for name in table.files}
            number, end = path.stem[-5:], 0
            rows = np.load(self._folder / f"rows-{number}.npy", mmap_mode="r")
            names = ("keys", "kinds", "prompts", "greedy", "lengths")
            for key, kind, n_prompt, greedy, n in zip(*map(values.get, names), strict=True):
                at = slice(end, end + n)
                end += n
                tokens = values["tokens"][at].tolist()
                talk = Talk(str(key), str(kind), int(n_prompt), tokens, bool(greedy))
                talk.rows, talk.ids, talk.logs = rows[at], values["ids"][at], values["logs"][at]
                yield talk


def split(talks: Sequence[Talk], most_tokens: int) -> tuple[list[Talk], list[Talk]]:
    """Return the conversations to train on, as far as so many tokens go, and those that are held out."""
    train, n_tokens = list[Talk](), 0
    for each in talks:
        if not each.is_held_out and n_tokens < most_tokens:
            train.append(each)
            n_tokens += len(each.tokens)
    return train, [each for each in talks if each.is_held_out]
