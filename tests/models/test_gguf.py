import os
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelFileError, ModelUnavailable
from localspec.models.gguf import MAX_HEADER_BYTES, GgufHeader, parse_header, read_header
from localspec.models.gguf_encoding import GGML_TYPES
from tests.models.gguf_builder import Content, Raw, Tensor, build, model_file, model_values, string

HUGE = 2**63
WIDE = model_file(  # 64 kB, most of it arrays
    tokens=[f"token-{number:08}" for number in range(2000)],
    token_type=[1] * 2000,
    scores=[0] * 2000,
)


def parsed(data: bytes, **more: int) -> GgufHeader:
    return parse_header(data, name="toy.gguf", **more)


def broken(data: bytes, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        parsed(data)
    assert str(caught.value).startswith("toy.gguf ")
    assert str(caught.value).isprintable()


def test_values_of_every_type_come_back() -> None:
    numbers: dict[int, tuple[str, float]] = {
        0: ("<B", 200),
        1: ("<b", -7),
        2: ("<H", 60_000),
        3: ("<h", -300),
        4: ("<I", 4 * 10**9),
    }
    numbers |= {5: ("<i", -70_000), 6: ("<f", 0.5), 7: ("<?", True), 10: ("<Q", 2**64 - 1)}
    numbers |= {11: ("<q", -(2**40)), 12: ("<d", 1e300)}
    values = {str(k): Raw(k, struct.pack(form, value)) for k, (form, value) in numbers.items()}
    empty = {"e8": Raw(9, struct.pack("<IQ", 8, 0)), "e6": Raw(9, struct.pack("<IQ", 6, 0))}
    arrays: dict[str, Content] = {"n": [1, -2, 3], "s": ["", "ab", "ü\0"], **empty}
    metadata = parsed(build({**values, **arrays, "text": "grüße"})).metadata
    assert {int(key): metadata[key] for key in values} == {k: v for k, (_, v) in numbers.items()}
    assert metadata["7"] is True
    assert metadata["text"] == "grüße"
    assert isinstance(metadata["n"], np.ndarray)
    assert metadata["n"].tolist() == [1, -2, 3]
    assert list(metadata["s"]) == [b"", b"ab", "ü\0".encode()]  # type: ignore[arg-type]
    assert len(metadata["e8"]) == len(metadata["e6"]) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_a_model_says_what_it_is(tmp_path: Path, version: int) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(model_file().replace(b"GGUF\x03", b"GGUF" + bytes([version])))
    header = read_header(path)
    assert (header.version, header.architecture, header.context_length) == (version, "toy", 512)
    assert (header.chat_template, header.size_bytes) == ("{{ messages }}", path.stat().st_size)
    (tensor,) = header.tensors
    assert (tensor.name, tensor.shape) == ("weights", (8, 4))
    assert (tensor.type_name, tensor.size_bytes) == ("F32", 128)
    bare = parsed(build({"general.architecture": 3}))
    assert (bare.architecture, bare.chat_template, bare.context_length) == (None, None, None)


def test_every_shorter_file_is_refused_and_future_types_are_read() -> None:
    data = model_file()
    for length in range(len(data)):
        broken(data[:length], "download it again")
    assert parsed(data[:-64] + bytes(64)).tensors
    array = struct.pack("<IQ", 8, MAX_HEADER_BYTES // 8) + bytes(MAX_HEADER_BYTES)
    broken(build({"k": Raw(9, array)}), "strings are promised")  # not walked to its end
    # A header alone is read where the file is known to be longer.
    assert parsed(data[:-128], size_bytes=len(data)).tokenizer.n_vocab == 6
    broken(data[:-1], rf"cut off after {len(data) - 1} bytes .*need {len(data)} bytes")
    parsed(build({"general.alignment": 4096}, [Tensor("t", (8,))], data_bytes=32, alignment=4096))
    data = build({}, [Tensor("t", (32,), type_id=1000, offset=32)], data_bytes=64)
    assert parsed(data).tensors[0].size_bytes is None
    broken(data[:-33], "weights need")
    q4_k = GGML_TYPES[12]
    assert [q4_k.row_bytes(width) for width in (512, 0, 500)] == [2 * 144, 0, None]
    widths = {GGML_TYPES[kind].name: GGML_TYPES[kind].row_bytes(3) for kind in (0, 1, 24, 28, 30)}
    assert widths == {"F32": 12, "F16": 6, "I8": 3, "F64": 24, "BF16": 6}


MAGIC = b"GGUF" + struct.pack("<I", 3)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (MAGIC + struct.pack("<QQ", HUGE, 0), f"cut off.*{HUGE} tensors are promised at byte 8"),
        (MAGIC + struct.pack("<QQ", 0, HUGE) + bytes(100), f"{HUGE} values are promised at byte 16"),
        (MAGIC + struct.pack("<QQQ", 0, 1, HUGE) + b"key", "cut off"),
        (build({"k": Raw(8, struct.pack("<Q", HUGE) + b"x")}), "cut off"),
        (build({"k": Raw(9, struct.pack("<IQ", 8, HUGE))}), "cut off"),
        (build({"k": Raw(9, struct.pack("<IQ", 5, HUGE // 2))}), "cut off"),
        (build({"k": Raw(9, struct.pack("<IQ", 8, 2) + string("a") + struct.pack("<Q", 2**64 - 1))}), "cut off"),
        (build({"k": Raw(9, struct.pack("<IQQ", 8, 3, 2**64 - 1) + bytes(40))}), "cut off"),
        (build({}, [Tensor("t", (HUGE,) * 4)], data_bytes=32), "cut off"),
        (build({}, [Tensor("t", (1,), offset=2**64 - 1)], data_bytes=32), "cut off"),
        (build({"k": Raw(9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 5, 0))}), "no value type 9"),
        (build({"k": Raw(99, b"")}), "no value type 99"),
        (build({"a": 1, "b": 2}).replace(string("b"), string("a")), "'a' occurs twice"),
        (build({"general.alignment": 24}), "power of two"),
        (build({}, [Tensor("t", (1,) * 5)], data_bytes=32), "5 dimensions"),
        (build({}, [Tensor("t", (33,), type_id=8)], data_bytes=64), "Q8_0 cannot hold"),
        (b"hello world, this is text\n", "not a GGUF file: give another"),
        (b"\0" * 100, "not a GGUF file"),
        (b"GG", "cut off"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1,"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4,"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_header_is_refused_before_anything_is_allocated(data: bytes, match: str) -> None:
    broken(data, match)


def test_what_cannot_be_opened_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "pipe.gguf")
    for name, error, match in [
        ("empty.gguf", ModelFileError, r"empty.gguf is empty"),
        ("gone.gguf", ModelUnavailable, r"no file .*gone.gguf"),
        (".", ModelUnavailable, "is a directory"),
        ("pipe.gguf", ModelUnavailable, "not a regular file"),
        ("a\nb.gguf", ModelUnavailable, "no file"),
        ("a\0b.gguf", ModelUnavailable, "cannot be read"),
        ("x" * 300 + ".gguf", ModelUnavailable, "cannot be read"),
    ]:
        with pytest.raises(error, match=match) as caught:
            read_header(tmp_path / name)
        assert str(caught.value).isprintable()


@given(st.data())
def test_no_promise_takes_more_memory_than_the_file_has(data: st.DataObject) -> None:
    file = bytearray(WIDE)
    at = data.draw(st.integers(4, len(file) - 8))
    promise = data.draw(st.sampled_from([2**31, 2**32 - 1, 2**40, HUGE - 1, HUGE, 2**64 - 1]))
    file[at : at + 8] = struct.pack("<Q", promise)
    tracemalloc.start()
    with suppress(ModelFileError):
        parsed(bytes(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(file)


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "a\0b", "\n", "..", ""])
def test_names_in_a_header_are_only_text(name: str) -> None:
    header = parsed(build({**model_values(), name: name}, [Tensor(name, (8, 4))], data_bytes=128))
    assert header.metadata[name] == header.tensors[0].name == name
