"""Which build of llama.cpp is loaded, each time in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.llama import chosen as chosen_module
from localspec.llama.chosen import BUILD_VARIABLE, builds_dir, choose, chosen
from localspec.llama.native import native

OWN_BUILD = Path(native.__file__).parents[1]
# As in an environment of another prefix.
_SCRIPT = """
import json, sys
sys.prefix = sys.argv[1]
from localspec.llama.native import native
print(json.dumps([native.__file__, native.llama_max_devices()]))
"""


def loaded(prefix: Path, **variables: str) -> Path:
    command = [sys.executable, "-c", _SCRIPT, str(prefix)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)[0]).parents[1]


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second build, which nobody has chosen, in an environment of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folder = builds_dir() / "other"
    ignored = shutil.ignore_patterns("server", "__pycache__")
    shutil.copytree(OWN_BUILD / "llama_cpp", folder / "llama_cpp", ignore=ignored)
    return folder


def test_a_build_is_used_once_it_is_chosen_and_until_it_is_not(other: Path, tmp_path: Path) -> None:
    assert loaded(tmp_path) == OWN_BUILD
    choose(other)
    assert loaded(tmp_path) == other
    assert loaded(tmp_path, **{BUILD_VARIABLE: "own"}) == OWN_BUILD
    choose(None)
    assert loaded(tmp_path) == OWN_BUILD
    assert loaded(tmp_path, **{BUILD_VARIABLE: str(other)}) == other


def test_a_build_that_does_not_load_or_is_of_another_version_is_passed_over(
    other: Path, tmp_path: Path
) -> None:
    choose(other)
    package = other / "llama_cpp"
    library = package / "lib" / Path(native._lib._name).name
    whole = library.read_bytes()
    library.write_bytes(b"no library")
    assert loaded(tmp_path) == OWN_BUILD
    library.write_bytes(whole)
    (package / "__init__.py").write_text('__version__ = "0.0.1"\n')
    assert loaded(tmp_path) == OWN_BUILD
    shutil.rmtree(other)
    assert loaded(tmp_path) == OWN_BUILD


def test_choosing_again_is_one_replacement(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(other)
    monkeypatch.setattr(Path, "replace", _refuses)
    with pytest.raises(OSError, match="no room"):
        choose(other.with_name("third"))
    assert chosen() == other.resolve()
    assert chosen_module.builds_dir() == other.parent


def _refuses(_self: Path, _target: object) -> Path:
    raise OSError("no room")
