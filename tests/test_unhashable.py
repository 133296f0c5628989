"""The rule that no set and no dict is asked for a value of no known type, see `lab/unhashable.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

RULE = Path(__file__).parents[1] / "lab/unhashable.py"
PLANTED = """
from collections.abc import Mapping
from typing import Any

KINDS = {"function", "tool"}
NAMES: Mapping[str, int] = {"a": 1}

def asked(body: dict[str, Any], word: str, value: Any) -> Any:
    bad = [
        body.get("kind") in {"function", "tool"},
        body["kind"] not in KINDS,
        NAMES.get(body["name"]),
        NAMES[value["name"]],
        value in NAMES,
    ]
    good = [
        body.get("kind") in ("function", "tool"),
        isinstance(value, str) and value in NAMES,
        str(value) in KINDS,
        word in KINDS,
        NAMES.get(word),
        body.get("kind"),
    ]
    return [*bad, *good]
"""
RULED = "a set or a dict is asked for a value of no known type"
BAD = (10, 11, 12, 13, 14)


@pytest.mark.slow
def test_a_planted_fault_is_found_and_what_is_checked_first_is_not(tmp_path: Path) -> None:
    for room in ("plugins/serve", "decoding"):
        folder = tmp_path / "localspec" / room
        folder.mkdir(parents=True)
        for each in (tmp_path / "localspec", folder.parent, folder):
            (each / "__init__.py").touch()
        (folder / "planted.py").write_text(PLANTED)
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\nplugins = {RULE}\ncache_dir = {tmp_path / 'cache'}\n"
    )
    line = [sys.executable, "-m", "mypy", "--config-file", str(config), "-p", "localspec"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [each.split(":")[:2] for each in done.stdout.splitlines() if RULED in each]
    assert found == [["localspec/plugins/serve/planted.py", str(number)] for number in BAD], (
        done.stdout
    )
