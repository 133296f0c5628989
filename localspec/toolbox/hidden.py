"""Hidden files: what no command may read. Keys, tokens and passwords, what was typed or said elsewhere, and localspec's own files.

The lists name what programs are known to keep; below the home folder, files whose names say so are hidden as well, so that a
program that no list knows has not to be named.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localspec.storage.paths import config_dir, data_dir

_LISTS = tomllib.loads(Path(__file__).with_name("hidden.toml").read_text(encoding="utf-8"))
_BELOW_HOME = [each for listed in _LISTS["home"].values() for each in listed]
_VARIABLES, _BASES = _LISTS["variables"], _LISTS["bases"]
_NAME = re.compile(
    r"(.*[._-])?(credentials?|auth|(access|api|refresh)?[_-]?(tokens?|keys?)|secrets?|passwords?|cookies)([._-](json|jsonc|toml|ya?ml|ini|conf|cfg|txt|db|sqlite|xml|properties|enc))?"
    r"|.*\.(pem|p12|pfx|jks|keystore|kdbx|keytab|ppk)|id_(rsa|dsa|ecdsa|ed25519)[\w-]*",
    re.IGNORECASE,
)
_NAMED_IN = (".*", ".config/*", ".local/share/*", ".local/state/*")


def hidden_paths() -> list[str]:
    """Return what no command may read, as far as it is there."""
    found = {data_dir(), config_dir(), *_listed(), *_named()}
    return sorted({os.path.realpath(each) for each in found if os.path.exists(each)})  # noqa: PTH110 - where it may not be seen, `Path` raises


def _listed() -> Iterator[Path]:
    """Yield what the lists name."""
    for each in _BELOW_HOME:
        yield from _matching(Path.home(), each)
    for variable, usual in _BASES.items():
        if base := os.environ.get(variable):
            for each in _BELOW_HOME:
                if each.startswith(f"{usual}/"):
                    yield from _matching(Path(base), each.removeprefix(f"{usual}/"))
    for each in _LISTS["machine"]:
        yield from _matching(Path("/"), each[1:])
    for variable in _VARIABLES:
        for each in os.environ.get(variable, "").removeprefix("FILE:").split(os.pathsep):
            path = Path(each)
            if path.is_absolute() and not Path.home().is_relative_to(path) and each != os.devnull:
                yield path


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    if "*" not in pattern:
        yield folder / pattern
        return
    with suppress(OSError):
        yield from folder.glob(pattern)


def _named() -> Iterator[Path]:
    """Yield files of programs' own folders in the home folder whose names say that they hold a key."""
    for folders in _NAMED_IN:
        for folder in _matching(Path.home(), folders):
            with suppress(OSError):
                for each in os.scandir(folder):
                    if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                        yield Path(each.path)
