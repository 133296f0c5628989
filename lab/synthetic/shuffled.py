"""A shuffled draft model: tokenizer and cost of a real one, and proposals that mean nothing.

Its blocks of weights are those of the real one in another order, so every number is a plausible
one, and its logits are finite noise.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lab.synthetic.gguf_layout import Placed, read_layout
from lab.synthetic.gguf_writer import copied
from lab.synthetic.made_file import Content, OnShare, Recipe, copying, labelled, made_file


def shuffled(
    source: Path, directory: Path, seed: int = 0, on_share: OnShare = lambda _: None
) -> Path:
    """Return a file like `source`, of the same speed and tokenizer, whose logits are noise.

    The blocks of every matrix are shuffled, so every number stays a plausible one.

    Args:
        source: any GGUF.
        directory: where to keep it.
        seed: the same one gives the same file.
        on_share: called with the share of it that is written, 0 to 1.

    Raises:
        ModelFileError: the file is no sound GGUF.
        LocalspecError: the disk has no room for it.
    """
    layout = read_layout(source)
    values = labelled(layout, "random weights")
    tensors = [
        (t.name, t, _shuffling(t, (seed, index)) if len(t.shape) > 1 else copying(t))
        for index, t in enumerate(layout.tensors)
    ]
    return made_file(source, layout, Recipe(f"random{seed}", values, tensors), directory, on_share)


def _shuffling(tensor: Placed, seed: tuple[int, int]) -> Content:
    def content(file: BinaryIO) -> Iterator[bytes]:
        rng = np.random.default_rng(seed)
        rest, block = b"", tensor.block_bytes
        for chunk in copied(file, tensor):
            whole = len(rest + chunk) // block * block
            blocks = np.frombuffer((rest + chunk)[:whole], dtype=np.dtype((np.void, block)))
            rest = (rest + chunk)[whole:]
            yield blocks[rng.permutation(len(blocks))].tobytes()

    return content
