"""llama.cpp's parser sees no file that our own checks have not passed: there is one way to it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import llama_cpp.llama_cpp as native
import pytest

import localspec
from localspec.errors import LocalspecError
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions
from tests.models.gguf_builder import model_file

PACKAGE = Path(localspec.__file__).parent


@cache
def _nodes() -> list[tuple[str, ast.Call | ast.Import | ast.ImportFrom]]:
    """Return every call and import, with the module that has it."""
    return [
        (str(path.relative_to(PACKAGE)), node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call | ast.Import | ast.ImportFrom)
    ]


def _uses(name: str) -> set[str]:
    """Return the modules that call something of this name."""
    found = set()
    for module, node in _nodes():
        if isinstance(node, ast.Call):
            called = node.func
            last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if last == name:
                found.add(module)
    return found


@pytest.mark.slow
def test_there_is_one_way_to_llama_cpp() -> None:
    assert _uses("llama_model_load_from_file") == {"llama/model.py"}
    assert _uses("llama_model_load_from_splits") == set()
    # `tailor` loads what a `LoadPlan` names, or what was made of it.
    planned = {"launch/load.py", "tailor/tailor.py"}
    assert _uses("LlamaModel") == planned | {"retrieval/embedding.py"}
    assert "retrieval/embedding.py" in _uses("read_header")
    # Files become a `LoadPlan` in one place, right after their headers were read.
    assert _uses("LoadPlan") == {"launch/plan.py"}


def test_pickles_and_code_are_never_read() -> None:
    imported = {
        name.split(".")[0]
        for _, node in _nodes()
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"pickle", "marshal", "shelve", "dill", "joblib", "torch", "yaml"}
    for name in ("eval", "exec", "extractall"):
        assert _uses(name) == set(), name


def _damaged() -> Iterator[bytes]:
    whole, chance = model_file(), Random(8)
    yield b""
    yield b"PK\x03\x04" + whole
    for _ in range(60):
        cut = chance.randrange(len(whole))
        yield whole[:cut]


def test_a_damaged_file_never_reaches_llama_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[int] = []
    monkeypatch.setattr(native, "llama_model_load_from_file", lambda *_: reached.append(1))
    file = tmp_path / "m.gguf"
    for content in _damaged():
        file.write_bytes(content)
        with pytest.raises(LocalspecError):
            load(make_plan(LaunchOptions(target=str(file))))
    assert reached == []
