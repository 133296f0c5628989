"""What was evaluated, saved and put back; and whatever is wrong with the files, nothing happens."""

import json
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.state import (
    StateUnfitError,
    _checksum,
    _file_checksum,
    restore_state,
    save_state,
    state_copy,
)
from tests.llama.conftest import OPTIONS

pytestmark = pytest.mark.weights

Factory = pytest.TempPathFactory
EXTRA = {"remembered": [["text \ud800", [1, 2]]]}


@pytest.fixture
def other(smollm2: LlamaModel) -> Iterator[LlamaContext]:
    context = LlamaContext(smollm2)
    yield context
    context.close()


def test_a_state_that_was_put_back_gives_the_same_logits(
    context: LlamaContext, other: LlamaContext, tokens: list[int], tmp_path: Path
) -> None:
    directory = tmp_path / "state" / "1"
    context.prefill(tokens)
    size = save_state(context, directory, "a", EXTRA)
    assert restore_state(other, directory, "a") == EXTRA
    assert other.cached == tuple(tokens)
    assert other.prefill(tokens) == 0
    more = [*tokens, *tokens[:5]]
    expected = context.logits(more, rows=3).copy()
    assert np.array_equal(other.logits(more, rows=3), expected)
    assert size > 90 * 1000


def test_a_copy_is_written_as_llama_cpp_writes_it_whatever_happened_since(
    context: LlamaContext, tokens: list[int], tmp_path: Path
) -> None:
    context.prefill(tokens)
    copy = state_copy(context, "a", EXTRA)
    save_state(context, tmp_path / "one" / "1", "a", EXTRA)
    context.truncate(0)
    context.prefill(tokens[:5])
    size = copy.save(tmp_path / "two" / "1")
    for name in ("target.kv", "state.json"):
        written = [(tmp_path / each / "1" / name).read_bytes() for each in ("one", "two")]
        assert written[0] == written[1]
    assert size == (tmp_path / "two" / "1" / "target.kv").stat().st_size


def test_where_there_is_no_memory_for_a_copy_there_is_none(
    context: LlamaContext, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StateUnfitError, match="nothing is evaluated"):
        state_copy(context, "a", {})
    context.prefill(tokens[:5])
    monkeypatch.setattr("localspec.llama.native_context.free_ram_bytes", lambda: 1000)
    with pytest.raises(StateUnfitError, match="no memory"):
        state_copy(context, "a", {})


def test_only_the_owner_can_read_it_and_there_is_one_at_most(
    context: LlamaContext, tokens: list[int], tmp_path: Path
) -> None:
    shelf = tmp_path / "state"
    context.prefill(tokens[:2])
    save_state(context, shelf / "1", "a", {})
    (shelf / ".left-by-a-crash").mkdir()
    (shelf / ".left-by-a-crash" / "target.kv").write_bytes(b"x")
    save_state(context, shelf / "2", "a", {})
    save_state(context, shelf / "2", "a", {})
    assert [each.name for each in shelf.iterdir()] == ["2"]
    for path in (shelf, shelf / "2"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (shelf / "2").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def unfit(context: LlamaContext, directory: Path, identity: str = "a") -> str:
    """See that a state is left alone and the context unharmed; return why."""
    context.prefill([1, 2, 3])
    with pytest.raises(StateUnfitError) as caught:
        restore_state(context, directory, identity)
    assert "\n" not in str(caught.value)
    assert context.cached == (1, 2, 3)
    return str(caught.value)


@pytest.fixture(scope="module")
def saved_once(smollm2: LlamaModel, tokens: list[int], tmp_path_factory: Factory) -> Path:
    directory = tmp_path_factory.mktemp("saved") / "state" / "1"
    context = LlamaContext(smollm2)
    context.prefill(tokens)
    save_state(context, directory, "a", EXTRA)
    context.close()
    return directory


@pytest.fixture
def saved(saved_once: Path, tmp_path: Path) -> Path:
    """A state of its own for each test, saved once."""
    return copytree(saved_once, tmp_path / "state" / "1")


def test_what_is_not_there_is_not_restored(other: LlamaContext, tmp_path: Path) -> None:
    assert unfit(other, tmp_path / "nowhere") == "there is none"


def test_of_another_model_it_is_not_restored(saved: Path, other: LlamaContext) -> None:
    assert unfit(other, saved, "b") == "it is of another model"


def test_of_another_cache_type_it_is_not_restored(saved: Path, smollm2_path: Path) -> None:
    model = LlamaModel(smollm2_path, replace(OPTIONS, kv_type="f16"))
    context = LlamaContext(model)
    assert unfit(context, saved) == "it is of another cache type"
    model.close()


def test_of_another_build_it_is_not_restored(saved: Path, other: LlamaContext) -> None:
    forge(saved, lambda header: header["belongs_to"].update({"llama.cpp": ["0.0.1"]}))
    assert unfit(other, saved) == "it is of another llama.cpp"


def test_in_a_smaller_context_it_is_not_restored(
    saved: Path, smollm2: LlamaModel, tokens: list[int]
) -> None:
    small = LlamaContext(smollm2, options=replace(OPTIONS, n_ctx=64))
    assert unfit(small, saved) == f"it has {len(tokens)} tokens, the context holds 64"
    small.close()


def forge(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a header, and its checksum with it."""
    path = directory / "state.json"
    header = json.loads(path.read_text().partition("\n")[2])
    change(header)
    write_header(directory, json.dumps(header).encode())


def write_header(directory: Path, body: bytes) -> None:
    (directory / "state.json").write_bytes(_checksum(body) + b"\n" + body)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{}", b"[" * 100_000, b'{"belongs_to": [], "extra": {}}', b"\x00" * 100],
)
def test_a_header_that_is_none_is_damaged(saved: Path, other: LlamaContext, body: bytes) -> None:
    write_header(saved, body)
    assert unfit(other, saved) == "it is damaged"
    (saved / "state.json").write_bytes(body)
    assert unfit(other, saved) == "it is damaged"


def test_a_header_of_another_version_is_named_as_one(saved: Path, other: LlamaContext) -> None:
    forge(saved, lambda header: header["belongs_to"].update({"version of localspec": 3}))
    assert unfit(other, saved) == "it is of another version of localspec"


@pytest.mark.parametrize("name", ["state.json", "target.kv"])
def test_not_one_changed_byte_gets_through(saved: Path, other: LlamaContext, name: str) -> None:
    whole = (saved / name).read_bytes()
    moments = random.Random(0)
    for _ in range(40):
        at = moments.randrange(len(whole))
        (saved / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        unfit(other, saved)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (saved / name).write_bytes(whole[:length])
        unfit(other, saved)
    (saved / name).write_bytes(whole)
    restore_state(other, saved, "a")


def test_a_payload_that_llama_cpp_refuses_leaves_an_empty_context(
    saved: Path, other: LlamaContext
) -> None:
    payload = saved / "target.kv"
    damaged = bytearray(payload.read_bytes())
    damaged[12 + 4 * 90 : 12 + 4 * 90 + 64] = (
        b"\xff" * 64
    )  # what follows the tokens: counts of cells
    payload.write_bytes(damaged)
    forge(saved, lambda header: header.update(blake2b=_file_checksum(payload)))
    with pytest.raises(StateUnfitError, match=r"llama\.cpp does not take it"):
        restore_state(other, saved, "a")
    assert other.cached == ()
    assert other.logits([1, 2, 3], rows=1).shape == (1, other.n_vocab)


def test_nothing_is_saved_of_nothing(other: LlamaContext, tmp_path: Path) -> None:
    with pytest.raises(StateUnfitError, match="nothing is evaluated"):
        save_state(other, tmp_path / "state" / "1", "a", {})
    assert list(tmp_path.iterdir()) == []


def test_where_no_directory_can_be_nothing_is_saved(
    context: LlamaContext, tokens: list[int], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    context.prefill(tokens[:2])
    with pytest.raises(StateUnfitError, match="cannot be written"):
        save_state(context, tmp_path / "file" / "1", "a", {})


FULL = """
import resource, sys
from pathlib import Path
from localspec.llama.sequence import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.llama.state import StateUnfitError, save_state
from tests.llama.conftest import OPTIONS

context = LlamaContext(LlamaModel(Path(sys.argv[1]), OPTIONS))
context.prefill(list(range(50)))
directory = Path(sys.argv[2])
save_state(context, directory, "a", {})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    save_state(context, directory, "a", {})
except StateUnfitError as error:
    print(error)
"""


def test_a_full_disk_costs_neither_the_engine_nor_the_state_before(
    smollm2_path: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "state" / "1"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(smollm2_path), str(directory)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "llama.cpp could not write it\n"
    assert [each.name for each in directory.parent.iterdir()] == ["1"]
    assert sorted(each.name for each in directory.iterdir()) == ["state.json", "target.kv"]
