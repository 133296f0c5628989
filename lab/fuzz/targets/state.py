"""A saved state: our header, and llama.cpp's file behind it, which llama.cpp gets only once all was checked."""

import ctypes
import hashlib
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import llama_cpp.llama_cpp as native

from lab.fuzz.target import FoundError, check_message, scratch
from localspec.llama.state import StateUnfitError, _belongs_to, _checksum, restore_state
from localspec.options import LoadOptions

_CUT = b"|payload|"
_PAYLOAD = b"what llama.cpp wrote"
_N_CTX = 512


class _Context:
    """As much of a context as restoring asks for."""

    model: Any = SimpleNamespace(options=LoadOptions(), on_gpu=False)
    native = SimpleNamespace(handle=0, filled=lambda _number: None)
    n_ctx = _N_CTX
    number = 0

    def truncate(self, length: int) -> None:
        assert length == 0

    def assume(self, tokens: list[int]) -> bool:
        return True


_CONTEXT: Any = _Context()


def _header(**changes: object) -> bytes:
    body = {
        "belongs_to": _belongs_to(_CONTEXT, "m"),
        "extra": {},
        "tokens": 3,
        "blake2b": hashlib.blake2b(_PAYLOAD, digest_size=32).hexdigest(),
        **changes,
    }
    return json.dumps(body).encode()


# A checksum can be made by anybody; the parts behind this mark get theirs before they are read.
_SEAL = b"|seal|"
SEEDS = (
    _checksum(_header()) + b"\n" + _header() + _CUT + _PAYLOAD,
    _SEAL + _header() + _CUT + _PAYLOAD,
    _SEAL + _header(tokens=99999, blake2b="") + _CUT,
    _SEAL + _header(tokens=[], belongs_to=None) + _CUT + _PAYLOAD,
    _SEAL + b"[]" + _CUT,
)


def run(data: bytes) -> None:
    header, _, payload = data.removeprefix(_SEAL).partition(_CUT)
    if data.startswith(_SEAL):
        header = _checksum(header) + b"\n" + header
    directory = scratch() / "state"
    directory.mkdir(exist_ok=True)
    (directory / "state.json").write_bytes(header)
    (directory / "target.kv").write_bytes(payload)
    try:
        with patch.object(native, "llama_state_seq_load_file", _load_file):
            restore_state(_CONTEXT, directory, "m")
    except StateUnfitError as error:
        check_message(str(error))


def _load_file(
    _handle: int,
    path: bytes,
    _seq: int,
    tokens: "ctypes.Array[ctypes.c_int32]",
    capacity: int,
    count: Any,
) -> int:
    """Stand for llama.cpp: it is never to see a file that is not the one that was written."""
    with open(path, "rb") as file:  # noqa: PTH123
        if file.read() != _PAYLOAD or not 0 < capacity < _N_CTX or len(tokens) != capacity:
            raise FoundError("llama.cpp got a file that was not checked")
    ctypes.cast(count, ctypes.POINTER(ctypes.c_size_t))[0] = capacity
    return len(_PAYLOAD)
