"""Which draft models can be made of the models that are here, and what becomes of each tensor."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.models.cut_head import can_cut
from localspec.models.gguf import GgufHeader, TensorInfo
from localspec.models.gguf_encoding import GGML_TYPES
from localspec.models.layers import BLOCK, separable_layers
from localspec.storage.paths import shown

# What CPUs rearrange for their widest kernels, on every kind of CPU, and what is quantised in seconds: IQ4_NL, which is
# as small, takes minutes.
_MADE = "Q4_0"
_FEWER = "Q2_K"
_NUMBERS = {each.name: number for number, each in GGML_TYPES.items()}
_HEAD = ("output.weight", "token_embd.weight")
_SMALLER = 0.5
_HEADS = (0.5, 0.25)
"""Of a vocabulary, what a cut head has."""
_WORTH_CUTTING = 0.05
_SHARES = (0.75, 0.9)
"""Of a target's layers, what a draft model of them has: of half of them, no set foretold a tenth of what the target said."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model that may be made.

    Args:
        recipe: what is done with the source, in a phrase; empty where it is taken as it is.
        source: a model's file.
        name: what the user calls that.
        size_bytes: of the file, about.
        kept: tensors that have another type than the others, with ggml's numbers of them.
        made: the type of the others; None where all stay as they are.
        left_out: layers of the source that it has not.
        lora: an adapter that is added to its weights first; None without one.
        n_ids: how many ids its head has rows for; None of all.
    """

    recipe: str
    source: Path
    name: str
    size_bytes: int
    kept: Mapping[str, int] = field(default_factory=dict)
    made: str | None = _MADE
    left_out: tuple[int, ...] = ()
    n_ids: int | None = None
    lora: Path | None = None

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.name}, {self.recipe or 'as it is'}"


def of_draft_model(source: Path, name: str, header: GgufHeader) -> Iterator[Candidate]:
    """Yield a draft model as it is, and what can be made of it, each of them another file."""
    yield Candidate("", source, name, header.size_bytes, made=None)
    every = _weights(header, _MADE)
    head = {name for name in _HEAD if name in every}
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
            types = {each: _NUMBERS[every[each].type_name] for each in kept}
            yield _candidate(recipe, source, name, header, _MADE, types)
    if can_cut(header):
        yield from _with_cut_heads(_candidate(f"all {_MADE}", source, name, header, _MADE), header)


def _with_cut_heads(candidate: Candidate, header: GgufHeader) -> Iterator[Candidate]:
    """Yield a candidate whose weights are of one type with heads of a part of its vocabulary, where that is a part of its cost."""
    n_vocab, n_embd = (
        header.tokenizer.n_vocab,
        header.number(f"{header.architecture}.embedding_length"),
    )
    row = GGML_TYPES[_NUMBERS[candidate.made or ""]].row_bytes(n_embd or 0) or 0
    for share in _HEADS:
        n_ids = round(share * n_vocab)
        saved = row * (n_vocab - n_ids)
        if saved >= _WORTH_CUTTING * candidate.size_bytes:
            recipe = f"{candidate.recipe}, head of {n_ids} ids"
            size = (
                candidate.size_bytes + row * n_ids
            )  # the embedding stays as it is, behind the tensors
            yield replace(candidate, recipe=recipe, n_ids=n_ids, size_bytes=size)


def with_adapter(candidates: Iterable[Candidate], lora: Path) -> Iterator[Candidate]:
    """Yield those candidates that are made anew altogether, with an adapter added before."""
    for each in candidates:
        if each.made is not None and not each.kept:
            yield replace(each, recipe=f"with {shown(lora.name)}, {each.recipe}", lora=lora)


def of_target(source: Path, name: str, header: GgufHeader) -> Iterator[Candidate]:
    """Yield a target's own weights in fewer bits as its draft, where that makes a model of half its size."""
    fewer = _weights(header, _FEWER)
    head = {name: _NUMBERS[_MADE] for name in _HEAD if name in fewer}
    made = [_candidate(f"all {_MADE}", source, name, header, _MADE)]
    if (
        fewer.keys() == _weights(header, _MADE).keys()
    ):  # else some rows are too short for its blocks
        made.append(_candidate(f"{_FEWER}, head {_MADE}", source, name, header, _FEWER, head))
    yield from (each for each in made if each.size_bytes <= _SMALLER * header.size_bytes)


def of_layers(source: Path, name: str, header: GgufHeader) -> Iterator[Candidate]:
    """Yield the first layers of a target as its draft, in fewer bits where that makes a model of half its size."""
    n_layers = separable_layers(header) or 0
    counts = {int(share * n_layers) for share in _SHARES} - {0}
    for count in sorted(counts):
        yield with_layers(source, name, header, range(count, n_layers))


def with_layers(
    source: Path, name: str, header: GgufHeader, left_out: Collection[int]
) -> Candidate:
    """Return a target without some of its layers as its draft."""
    n_layers = separable_layers(header) or 0
    left = n_layers - len(left_out)
    first = all(layer >= left for layer in left_out)
    which = f"its first {left}" if first else f"{left}"
    recipe = f"{which} of {n_layers} layers"
    if not first:
        recipe += f", without {', '.join(map(str, sorted(left_out)))}"
    made = _layers_type(header)
    if made is not None:
        recipe += f", {made}"
    return _candidate(recipe, source, name, header, made, left_out=tuple(sorted(left_out)))


def requantised(source: Path, name: str, header: GgufHeader) -> Candidate | None:
    """Return a model in the type whose wide passes cost least; None where it is in it."""
    every = _weights(header, _MADE).values()
    total, there = (
        sum(each.size_bytes or 0 for each in every if pick or each.type_name == _MADE)
        for pick in (True, False)
    )
    return None if 2 * there > total else _candidate(f"all {_MADE}", source, name, header, _MADE)


def _layers_type(header: GgufHeader) -> str | None:
    """Return the type of a draft model of layers; None where they stay as they are, which is small."""
    smaller = _candidate("", Path(), "", header, _MADE)
    return _MADE if smaller.size_bytes <= _SMALLER * header.size_bytes else None


def _candidate(
    recipe: str,
    source: Path,
    name: str,
    header: GgufHeader,
    made: str | None,
    kept: Mapping[str, int] | None = None,
    left_out: tuple[int, ...] = (),
) -> Candidate:
    size, kept, gone = header.size_bytes, kept or {}, set(left_out)
    quantised = {} if made is None else _weights(header, made)
    for each in header.tensors:
        match = BLOCK.match(each.name)
        if match and int(match[1]) in gone:
            size -= each.size_bytes or 0
        elif made is not None and each.name in quantised:
            kind = GGML_TYPES[kept.get(each.name, _NUMBERS[made])]
            rows = (each.size_bytes or 0) // (_row_bytes(each) or 1)
            size += (kind.row_bytes(each.shape[0]) or 0) * rows - (each.size_bytes or 0)
    return Candidate(recipe, source, name, size, kept, made, left_out)


def _weights(header: GgufHeader, made: str) -> dict[str, TensorInfo]:
    """Return the matrices that can be made of a type, by name."""
    block = GGML_TYPES[_NUMBERS[made]].block_size
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
