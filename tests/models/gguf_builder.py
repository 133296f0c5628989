"""Writes small GGUF files, right or deliberately wrong, for tests of what reads them."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Raw:
    """A value given as its type number and its bytes."""

    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    type_id: int = 0
    offset: int = 0


Content = str | bool | int | float | Raw | Sequence[str] | Sequence[bytes] | Sequence[int]


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _value(value: Content) -> bytes:
    match value:
        case Raw():
            kind, payload = value.kind, value.payload
        case str():
            kind, payload = 8, string(value)
        case bool():
            kind, payload = 7, struct.pack("<?", value)
        case int():
            kind, payload = 4, struct.pack("<I", value)
        case float():
            kind, payload = 6, struct.pack("<f", value)
        case _:
            kind, payload = 9, _array(value)
    return struct.pack("<I", kind) + payload


def _array(items: Sequence[str] | Sequence[bytes] | Sequence[int]) -> bytes:
    strings = [item for item in items if isinstance(item, str | bytes)]
    if strings:
        return struct.pack("<IQ", 8, len(strings)) + b"".join(map(string, strings))
    return struct.pack(f"<IQ{len(items)}i", 5, len(items), *items)


def build(
    values: Mapping[str, Content],
    tensors: Sequence[Tensor] = (),
    *,
    data_bytes: int = 0,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """Return a file: header, padding and `data_bytes` of weights."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    header += b"".join(string(key) + _value(value) for key, value in values.items())
    for tensor in tensors:
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        header += string(tensor.name) + shape + struct.pack("<IQ", tensor.type_id, tensor.offset)
    padding = -len(header) % alignment if tensors else 0
    return header + bytes(padding) + b"\x5a" * data_bytes


TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab"]


def model_values(**changes: Content | None) -> dict[str, Content]:
    """Return the values of a small model; keyword `pre` means `tokenizer.ggml.pre`; None drops."""
    values: dict[str, Content] = {
        "general.architecture": "toy",
        "toy.context_length": 512,
        "tokenizer.chat_template": "{{ messages }}",
    }
    tokenizer: dict[str, Content | None] = {
        "model": "gpt2",
        "pre": "toy-bpe",
        "tokens": TOKENS,
        "token_type": [2, 3, 3, 1, 1, 1],
        "merges": ["a b"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_bos_token": True,
        **changes,
    }
    values.update(
        {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items() if value is not None}
    )
    return values


def model_file(**changes: Content | None) -> bytes:
    """Return a small model with one 8 x 4 float tensor, 128 bytes of weights."""
    return build(model_values(**changes), [Tensor("weights", (8, 4))], data_bytes=128)
