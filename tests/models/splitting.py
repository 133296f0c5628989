"""Splits a GGUF file as llama.cpp's `llama-gguf-split` does: metadata in the first, tensors in order."""

import struct
from pathlib import Path

from lab.synthetic.gguf_layout import Placed, read_layout
from lab.synthetic.gguf_writer import NewTensor, copied, write_gguf


def split_gguf(file: Path, folder: Path, stem: str, tensors_each: int) -> list[Path]:
    """Write a model into several files of at most so many tensors, and return them in order."""
    layout = read_layout(file)
    parts = [
        layout.tensors[start : start + tensors_each]
        for start in range(0, len(layout.tensors), tensors_each)
    ]
    paths = []
    for number, part in enumerate(parts):
        path = folder / f"{stem}-{number + 1:05}-of-{len(parts):05}.gguf"
        values = {
            **(layout.values if number == 0 else {}),
            "split.no": struct.pack("<IH", 2, number),
            "split.tensors.count": struct.pack("<Ii", 5, len(layout.tensors)),
            "split.count": struct.pack("<IH", 2, len(parts)),
        }
        _write(file, path, layout.version, values, part, layout.alignment)
        paths.append(path)
    return paths


def _write(
    source: Path,
    path: Path,
    version: int,
    values: dict[str, bytes],
    part: tuple[Placed, ...],
    alignment: int,
) -> None:
    with source.open("rb") as weights, path.open("wb") as out:
        tensors = [NewTensor(each.name, each, copied(weights, each)) for each in part]
        for _ in write_gguf(out, version, values, tensors, alignment):
            pass
