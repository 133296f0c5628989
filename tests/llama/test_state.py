"""What was evaluated, saved and put back; damaged files change nothing."""

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

import llama_cpp.llama_cpp as native
import numpy as np
import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.state import (
    StateUnfitError,
    _checksum,
    restore_state,
    save_state,
    state_copy,
)
from tests.llama.conftest import OPTIONS

pytestmark = pytest.mark.weights

EXTRA = {"remembered": [["text \ud800", [1, 2]]]}


@pytest.fixture
def other(smollm2: LlamaModel) -> Iterator[LlamaContext]:
    context = LlamaContext(smollm2)
    yield context
    context.close()


@pytest.fixture(scope="module")
def saved_once(
    smollm2: LlamaModel, tokens: list[int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
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


def test_a_state_that_was_put_back_gives_the_same_logits(
    context: LlamaContext, other: LlamaContext, tokens: list[int], tmp_path: Path
) -> None:
    """And a copy is written as llama.cpp writes it, whatever was evaluated since."""
    context.prefill(tokens)
    copy = state_copy(context, "a", EXTRA)
    size = save_state(context, tmp_path / "one" / "1", "a", EXTRA)
    more = [*tokens, *tokens[:5]]
    expected = context.logits(more, rows=3).copy()
    assert restore_state(other, tmp_path / "one" / "1", "a") == EXTRA
    assert other.cached == tuple(tokens)
    assert other.prefill(tokens) == 0
    assert np.array_equal(other.logits(more, rows=3), expected)
    context.truncate(0)
    assert copy.save(tmp_path / "two" / "1") == size > 90 * 1000
    for name in ("target.kv", "state.json"):
        one, two = ((tmp_path / each / "1" / name).read_bytes() for each in ("one", "two"))
        assert one == two
    assert size == (tmp_path / "two" / "1" / "target.kv").stat().st_size


def test_there_is_one_state_of_the_owner_and_none_of_nothing_or_without_room(
    context: LlamaContext, tokens: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "state"
    for save in (lambda: state_copy(context, "a", {}), lambda: save_state(context, shelf, "a", {})):
        with pytest.raises(StateUnfitError, match="nothing is evaluated"):
            save()
    assert list(tmp_path.iterdir()) == []
    context.prefill(tokens[:2])
    save_state(context, shelf / "1", "a", {})
    (shelf / ".left-by-a-crash").mkdir()
    (shelf / ".left-by-a-crash" / "target.kv").write_bytes(b"x")
    for _ in range(2):
        save_state(context, shelf / "2", "a", {})
    assert [each.name for each in shelf.iterdir()] == ["2"]
    for path in (shelf, *shelf.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    (tmp_path / "file").touch()
    with pytest.raises(StateUnfitError, match="cannot be written"):
        save_state(context, tmp_path / "file" / "1", "a", {})
    monkeypatch.setattr("localspec.llama.native_context.free_ram_bytes", lambda: 1000)
    with pytest.raises(StateUnfitError, match="no memory"):
        state_copy(context, "a", {})


def why_unfit(context: LlamaContext, directory: Path, identity: str = "a") -> str:
    """See that a state is left alone and the context unharmed; return why."""
    context.prefill([1, 2, 3])
    with pytest.raises(StateUnfitError) as caught:
        restore_state(context, directory, identity)
    assert "\n" not in str(caught.value)
    assert context.cached == (1, 2, 3)
    return str(caught.value)


def forge(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a header, and its checksum with it."""
    header = json.loads((directory / "state.json").read_text().partition("\n")[2])
    change(header)
    body = json.dumps(header).encode()
    (directory / "state.json").write_bytes(_checksum(body) + b"\n" + body)


def test_what_belongs_to_something_else_is_not_restored(
    saved: Path, other: LlamaContext, smollm2: LlamaModel, tokens: list[int]
) -> None:
    assert why_unfit(other, saved.with_name("nowhere")) == "there is none"
    assert why_unfit(other, saved, "b") == "it is of another model"
    small = LlamaContext(smollm2, options=replace(OPTIONS, n_ctx=64))
    assert why_unfit(small, saved) == f"it has {len(tokens)} tokens, the context holds 64"
    small.close()
    model = LlamaModel(smollm2.path, replace(OPTIONS, kv_type="f16"))
    assert why_unfit(LlamaContext(model), saved) == "it is of another cache type"
    model.close()
    whole = (saved / "state.json").read_bytes()
    for name, value in (("llama.cpp", ["0.0.1"]), ("version of localspec", 3)):
        (saved / "state.json").write_bytes(whole)
        forge(saved, lambda header, its={name: value}: header["belongs_to"].update(its))  # type: ignore[misc]
        assert why_unfit(other, saved) == f"it is of another {name}"


@pytest.mark.parametrize("name", ["state.json", "target.kv"])
def test_not_one_changed_byte_gets_through(saved: Path, other: LlamaContext, name: str) -> None:
    whole = (saved / name).read_bytes()
    moments = random.Random(0)
    for _ in range(20):
        at = moments.randrange(len(whole))
        (saved / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        why_unfit(other, saved)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (saved / name).write_bytes(whole[:length])
        why_unfit(other, saved)
    (saved / name).write_bytes(whole)
    restore_state(other, saved, "a")


def test_a_refused_payload_leaves_an_empty_context(
    saved: Path, other: LlamaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.prefill([1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(native, "llama_state_seq_load_file", lambda *_: 0)
        with pytest.raises(StateUnfitError, match=r"llama\.cpp does not take it"):
            restore_state(other, saved, "a")
    assert other.cached == ()
    assert other.logits([1, 2, 3], rows=1).shape == (1, other.n_vocab)


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


def test_a_full_disk_leaves_the_state_before(smollm2_path: Path, tmp_path: Path) -> None:
    directory = tmp_path / "state" / "1"
    command = [sys.executable, "-c", FULL, str(smollm2_path), str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "llama.cpp could not write it\n"
    assert [each.name for each in directory.parent.iterdir()] == ["1"]
    assert sorted(each.name for each in directory.iterdir()) == ["state.json", "target.kv"]
