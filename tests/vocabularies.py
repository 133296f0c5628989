"""Nineteen real tokenizers without weights, the `ggml-vocab-*.gguf` of llama.cpp, and the seventy chat templates beside them.

They come with the source distribution of llama-cpp-python, 77 MB, which is fetched once for each; the
files are kept in `LOCALSPEC_TEST_CACHE`, or else in the platform's cache directory.
"""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import platformdirs

_PREFIX, _SUFFIX = "ggml-vocab-", ".gguf"


def real_vocabularies() -> dict[str, Path]:
    """Return the files by name, such as `qwen2`; fetches them where they are not here yet."""
    return _files("vocabularies", _PREFIX, _SUFFIX)


def real_templates() -> dict[str, Path]:
    """Return chat templates by name, such as `Qwen3-Coder`, likewise."""
    return _files("templates", "", ".jinja")


def cache_folder() -> Path:
    override = os.environ.get("LOCALSPEC_TEST_CACHE")
    cache = Path(override) if override else platformdirs.user_cache_path("localspec-tests")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _files(kind: str, prefix: str, suffix: str) -> dict[str, Path]:
    version = importlib.metadata.version("llama-cpp-python")
    cache = cache_folder()
    folder = cache / f"{kind}-{version}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            fetched = Path(temporary, "fetched")
            _extract(_source_distribution(version, Path(temporary)), fetched, prefix, suffix)
            try:
                fetched.rename(folder)  # whole or not at all
            except OSError:  # another process was there first
                if not folder.is_dir():
                    raise
    return {
        path.name.removeprefix(prefix).removesuffix(suffix): path
        for path in sorted(folder.iterdir())
    }


def _source_distribution(version: str, folder: Path) -> Path:
    name = "llama-cpp-python"
    # Of this package alone: `:all:` would have pip compile the CMake that it asks for what the archive depends on.
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--no-binary={name}"]
    subprocess.run([*pip, "--dest", folder, f"{name}=={version}"], check=True)
    return next(folder.glob("*.tar.gz"))


def _extract(archive: Path, folder: Path, prefix: str, suffix: str) -> None:
    folder.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name.startswith(prefix) and name.endswith(suffix):
                content = tar.extractfile(member)
                assert content is not None
                (folder / name).write_bytes(content.read())
