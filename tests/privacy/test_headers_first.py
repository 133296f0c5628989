"""llama.cpp's parser sees no file that our own checks have not passed: there is one way to it."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random

import llama_cpp.llama_cpp as native
import pytest

import localspec
from localspec.errors import LocalspecError
from localspec.launch.load import load
from localspec.options import LaunchOptions
from localspec.plan.make import make_plan
from tests.models.gguf_builder import model_file

PACKAGE = Path(localspec.__file__).parent


@cache
def _uses() -> dict[str, set[str]]:
    """Return by the name of what is called or imported the modules that do so."""
    uses: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Call):
                names = [getattr(node.func, "attr", getattr(node.func, "id", ""))]
            elif isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").partition(".")[0]]
            for name in names:
                uses[name].add(str(path.relative_to(PACKAGE)))
    return uses


@pytest.mark.slow
def test_there_is_one_way_to_llama_cpp() -> None:
    assert _uses()["llama_model_load_from_file"] == {"llama/model.py"}
    # `tailor` loads what a `LoadPlan` names, or what was made of it; a long prompt is counted by the vocabulary of one.
    planned = {"launch/load.py", "launch/local_engine.py", "plugins/tailor/tailor.py"}
    embedding, vocabulary = "launch/embedding.py", "plugins/remote/vocabulary.py"
    assert _uses()["LlamaModel"] == planned | {embedding, "retrieval/embedding.py", vocabulary}
    assert {embedding, vocabulary} <= _uses()["read_model"]
    assert "retrieval/embedding.py" in _uses()["read_header"]
    # Files become a `LoadPlan` in one place, right after their headers were read.
    assert _uses()["LoadPlan"] == {"plan/decide.py"}
    # Pickles and code are never read.
    readers = ("pickle", "shelve", "dill", "joblib", "torch", "yaml", "eval", "exec", "extractall")  # fmt: skip
    for name in ("llama_model_load_from_splits", *readers):
        assert name not in _uses(), _uses()[name]
    # Only a child reads so, and only what its parent writes to it.
    assert _uses()["marshal"] == {"bounded_process.py"}


def test_llama_cpp_gets_no_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[int] = []
    monkeypatch.setattr(native, "llama_model_load_from_file", lambda *_: reached.append(1))
    file, whole, chance = tmp_path / "m.gguf", model_file(), Random(8)
    cuts = [whole[: chance.randrange(len(whole))] for _ in range(60)]
    for content in (b"", b"PK\x03\x04" + whole, *cuts):
        file.write_bytes(content)
        with pytest.raises(LocalspecError):
            load(make_plan(LaunchOptions(target=str(file))))
    assert reached == []
