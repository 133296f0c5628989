"""Which draft models can be made of the models that are here, and what becomes of each tensor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.models.gguf import GgufHeader, TensorInfo
from localspec.models.gguf_encoding import GGML_TYPES

# What CPUs rearrange for their widest kernels, on every kind of CPU, and what is quantised in seconds: IQ4_NL, which is
# as small, takes minutes.
_MADE = "Q4_0"
_NUMBERS = {each.name: number for number, each in GGML_TYPES.items()}
_HEAD = ("output.weight", "token_embd.weight")
_SMALLER = 0.5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model that may be made.

    Args:
        recipe: what is done with the source, in a phrase; empty where it is taken as it is.
        source: a model's file.
        name: what the user calls that.
        kept: tensors that stay as they are, with ggml's numbers of their types.
        size_bytes: of the file, about.
    """

    recipe: str
    source: Path
    name: str
    kept: Mapping[str, int]
    size_bytes: int

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.name}, {self.recipe or 'as it is'}"


def of_draft_model(source: Path, name: str, header: GgufHeader) -> Iterator[Candidate]:
    """Yield a draft model as it is, and what can be made of it, each of them another file."""
    yield Candidate("", source, name, {}, header.size_bytes)
    every, head = _weights(header), _head(header)
    recipes = {
        f"all {_MADE}": set[str](),
        f"{_MADE}, head as it is": head,
        f"head {_MADE}": every.keys() - head,
    }
    seen = {frozenset(each.name for each in every.values() if each.type_name == _MADE)}
    for recipe, kept in recipes.items():
        made = frozenset(
            each.name for each in every.values() if each.name not in kept or each.type_name == _MADE
        )
        if made not in seen:
            seen.add(made)
            yield _candidate(recipe, source, name, header, kept)


def of_target(source: Path, name: str, header: GgufHeader) -> Candidate | None:
    """Return a target in fewer bits as its own draft; None where that makes no model of half its size."""
    made = _candidate(f"all {_MADE}", source, name, header, set())
    return made if made.size_bytes <= _SMALLER * header.size_bytes else None


def requantised(source: Path, name: str, header: GgufHeader) -> Candidate | None:
    """Return a model in the type whose wide passes cost least; None where it is in it."""
    every = _weights(header).values()
    total, there = (
        sum(each.size_bytes or 0 for each in every if pick or each.type_name == _MADE)
        for pick in (True, False)
    )
    return None if 2 * there > total else _candidate(f"all {_MADE}", source, name, header, set())


def _candidate(
    recipe: str, source: Path, name: str, header: GgufHeader, kept: set[str]
) -> Candidate:
    every = _weights(header)
    size = header.size_bytes
    for each in every.values():
        if each.name not in kept:
            row = GGML_TYPES[_NUMBERS[_MADE]].row_bytes(each.shape[0]) or 0
            rows = (each.size_bytes or 0) // (_row_bytes(each) or 1)
            size += row * rows - (each.size_bytes or 0)
    numbers = {each: _NUMBERS[every[each].type_name] for each in kept}
    return Candidate(recipe, source, name, numbers, size)


def _head(header: GgufHeader) -> set[str]:
    return {name for name in _HEAD if name in _weights(header)}


def _weights(header: GgufHeader) -> dict[str, TensorInfo]:
    """Return the matrices that can be made Q4_0, by name."""
    block = GGML_TYPES[_NUMBERS[_MADE]].block_size
    return {
        each.name: each
        for each in header.tensors
        if len(each.shape) > 1
        and each.name.endswith("weight")
        and each.shape[0] % block == 0
        and each.type_name in _NUMBERS
    }


def _row_bytes(tensor: TensorInfo) -> int | None:
    return GGML_TYPES[_NUMBERS[tensor.type_name]].row_bytes(tensor.shape[0])
