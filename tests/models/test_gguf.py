import os
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable
from localspec.models.gguf import MAX_HEADER_BYTES, parse_header, read_header
from tests.models.gguf_builder import Raw, Tensor, build, model_file, model_values, string

HUGE = 2**63
# 64 kB, most of it arrays.
WIDE = model_file(
    tokens=[f"token-{number:08}" for number in range(2000)],
    token_type=[1] * 2000,
    scores=[0] * 2000,
)


def broken(data: bytes, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        parse_header(data, name="toy.gguf")
    message = str(caught.value)
    assert message.startswith("toy.gguf ")
    assert message.isprintable()


def test_values_of_every_type_come_back() -> None:
    numbers = {
        0: ("<B", 200),
        1: ("<b", -7),
        2: ("<H", 60_000),
        3: ("<h", -300),
        4: ("<I", 4_000_000_000),
        5: ("<i", -70_000),
        6: ("<f", 0.5),
        7: ("<?", True),
        10: ("<Q", 2**64 - 1),
        11: ("<q", -(2**40)),
        12: ("<d", 1e300),
    }
    values = {str(k): Raw(k, struct.pack(form, value)) for k, (form, value) in numbers.items()}
    metadata = parse_header(build({**values, "text": "grüße"}), name="toy.gguf").metadata
    assert {int(key): metadata[key] for key in values} == {k: v for k, (_, v) in numbers.items()}
    assert metadata["7"] is True
    assert metadata["text"] == "grüße"


def test_arrays_come_back() -> None:
    header = parse_header(build({"n": [1, -2, 3], "s": ["", "ab", "ü\0"]}), name="toy.gguf")
    numbers, strings = header.metadata["n"], header.metadata["s"]
    assert isinstance(numbers, np.ndarray)
    assert numbers.tolist() == [1, -2, 3]
    assert list(strings) == [b"", b"ab", "ü\0".encode()]  # type: ignore[arg-type]


def test_empty_arrays_are_arrays() -> None:
    empty = Raw(9, struct.pack("<IQ", 8, 0))
    numbers = Raw(9, struct.pack("<IQ", 6, 0))
    metadata = parse_header(build({"s": empty, "n": numbers}), name="toy.gguf").metadata
    assert len(metadata["s"]) == len(metadata["n"]) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_a_model_says_what_it_is(tmp_path: Path, version: int) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(model_file().replace(b"GGUF\x03", b"GGUF" + bytes([version])))
    header = read_header(path)
    assert header.version == version
    assert header.architecture == "toy"
    assert header.context_length == 512
    assert header.chat_template == "{{ messages }}"
    assert header.size_bytes == path.stat().st_size
    assert [(t.name, t.shape, t.type_name, t.size_bytes) for t in header.tensors] == [
        ("weights", (8, 4), "F32", 128)
    ]


def test_what_a_header_does_not_say_is_none() -> None:
    header = parse_header(build({"general.architecture": 3}), name="toy.gguf")
    assert (header.architecture, header.chat_template, header.context_length) == (None, None, None)


def test_every_shorter_file_is_refused() -> None:
    data = model_file()
    for length in range(len(data)):
        with pytest.raises(ModelFileError, match="download it again"):
            parse_header(data[:length], name="toy.gguf")
    parse_header(data, name="toy.gguf")


def test_a_header_alone_is_read_when_the_file_is_known_to_be_longer() -> None:
    data = model_file()
    header = parse_header(data[:-128], name="toy.gguf", size_bytes=len(data))
    assert header.tokenizer.n_vocab == 6
    broken(data[:-128], "weights need")


def test_weights_that_are_cut_off_are_named_with_their_size() -> None:
    data = model_file()
    broken(data[:-1], rf"cut off after {len(data) - 1} bytes .*need {len(data)} bytes")


def test_a_zero_filled_tail_is_no_matter_of_the_header() -> None:
    assert parse_header(model_file()[:-64] + bytes(64), name="toy.gguf").tensors


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", HUGE) + b"key",
        build({"k": Raw(8, struct.pack("<Q", HUGE) + b"x")}),
        build({"k": Raw(9, struct.pack("<IQ", 8, HUGE))}),
        build({"k": Raw(9, struct.pack("<IQ", 5, HUGE // 2))}),
        build({"k": Raw(9, struct.pack("<IQ", 8, 2) + string("a") + struct.pack("<Q", 2**64 - 1))}),
        build({"k": Raw(9, struct.pack("<IQ", 8, 1) + struct.pack("<Q", HUGE))}),
        build({"k": Raw(9, struct.pack("<IQQ", 8, 3, 2**64 - 1) + bytes(40))}),
        build({}, [Tensor("t", (HUGE, HUGE, HUGE, HUGE))], data_bytes=32),
        build({}, [Tensor("t", (1,), offset=2**64 - 1)], data_bytes=32),
    ],
)
def test_lengths_beyond_the_file_are_refused_before_anything_is_allocated(data: bytes) -> None:
    broken(data, "cut off")


def test_counts_that_cannot_be_are_named() -> None:
    counts = struct.pack("<IQQ", 3, HUGE, HUGE)
    broken(b"GGUF" + counts, f"{HUGE} tensors are promised at byte 8")
    counts = struct.pack("<IQQ", 3, 0, HUGE)
    broken(b"GGUF" + counts + bytes(100), f"{HUGE} values are promised at byte 16")


def test_an_array_of_arrays_is_refused() -> None:
    inner = struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 5, 0)
    broken(build({"k": Raw(9, inner)}), "no value type 9")


def test_an_unknown_value_type_is_refused() -> None:
    broken(build({"k": Raw(99, b"")}), "no value type 99")


def test_a_key_that_occurs_twice_is_refused() -> None:
    data = build({"a": 1, "b": 2}).replace(string("b"), string("a"))
    broken(data, "'a' occurs twice")


@pytest.mark.parametrize("alignment", [0, 24])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: int) -> None:
    broken(build({"general.alignment": alignment}), "power of two")


def test_the_alignment_of_the_file_is_used() -> None:
    values = {"general.alignment": 4096}
    tensors = [Tensor("t", (8,))]
    data = build(values, tensors, data_bytes=32, alignment=4096)
    parse_header(data, name="toy.gguf")
    broken(data[:-1], "weights need")


def test_five_dimensions_are_refused() -> None:
    broken(build({}, [Tensor("t", (1,) * 5)], data_bytes=32), "5 dimensions")


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    broken(build({}, [Tensor("t", (33,), type_id=8)], data_bytes=64), "Q8_0 cannot hold")


def test_a_tensor_type_of_the_future_still_has_to_begin_inside_the_file() -> None:
    data = build({}, [Tensor("t", (32,), type_id=1000, offset=32)], data_bytes=64)
    assert parse_header(data, name="toy.gguf").tensors[0].size_bytes is None
    broken(data[:-33], "weights need")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"hello world, this is text\n", r"not a GGUF file \(it begins with b'hello world"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file"),
        (b"\0" * 100, "not a GGUF file"),
        (b"GG", "cut off"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1,"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4,"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ],
)
def test_other_files_are_told_apart(data: bytes, match: str) -> None:
    broken(data, match)


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "toy.gguf"
    path.touch()
    with pytest.raises(ModelFileError, match=r"toy.gguf is empty"):
        read_header(path)


def test_a_missing_file_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no file .*gone.gguf"):
        read_header(tmp_path / "gone.gguf")


def test_a_directory_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="is a directory"):
        read_header(tmp_path)


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelUnavailable, match="not a regular file"):
        read_header(tmp_path / "pipe.gguf")


def test_a_path_with_odd_characters_is_shown_on_one_line(tmp_path: Path) -> None:
    for name in ("a\nb.gguf", "a\0b.gguf", "x" * 300 + ".gguf"):
        with pytest.raises(ModelUnavailable) as caught:
            read_header(tmp_path / name)
        assert str(caught.value).isprintable()


def test_a_header_that_does_not_end_is_not_walked_to_its_end() -> None:
    count = MAX_HEADER_BYTES // 8
    data = build({"k": Raw(9, struct.pack("<IQ", 8, count) + bytes(8 * count))})
    broken(data, "strings are promised")


@given(st.data())
def test_damage_anywhere_gives_a_header_or_one_line(data: st.DataObject) -> None:
    file = bytearray(model_file())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        new = data.draw(st.binary(min_size=1, max_size=8))
        file[at : at + len(new)] = new
    del file[data.draw(st.integers(0, len(file))) :]
    problem = ""
    try:
        tokenizer = parse_header(bytes(file), name="toy.gguf").tokenizer
        assert len(list(tokenizer.tokens)) == tokenizer.n_vocab
    except LocalspecError as error:
        problem = str(error)
    assert problem.isprintable()


@given(st.data())
def test_no_promise_of_a_file_makes_the_reader_take_more_memory_than_the_file_has(
    data: st.DataObject,
) -> None:
    file = bytearray(WIDE)
    at = data.draw(st.integers(4, len(file) - 8))
    promise = data.draw(st.sampled_from([2**31, 2**32 - 1, 2**40, HUGE - 1, HUGE, 2**64 - 1]))
    file[at : at + 8] = struct.pack("<Q", promise)
    tracemalloc.start()
    with suppress(ModelFileError):
        parse_header(bytes(file), name="toy.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(file)


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "a\0b", "\n", "..", ""])
def test_names_in_a_header_are_only_text(name: str) -> None:
    data = build({**model_values(), name: name}, [Tensor(name, (8, 4))], data_bytes=128)
    header = parse_header(data, name="toy.gguf")
    assert header.metadata[name] == name
    assert header.tensors[0].name == name


@given(st.binary(max_size=400))
def test_any_bytes_behind_the_magic_give_a_header_or_one_line(tail: bytes) -> None:
    problem = ""
    try:
        parse_header(b"GGUF\x03\0\0\0" + tail, name="toy.gguf")
    except ModelFileError as error:
        problem = str(error)
    assert problem.isprintable()
