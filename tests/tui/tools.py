"""A project, a model that wants to read, change and test it, and what it is to be allowed."""

import json
from pathlib import Path
from typing import Any

from localspec.session.approval import CallRunner
from localspec.toolbox.built_in import BuiltIn
from localspec.toolbox.folder import Folder
from localspec.toolbox.permissions import Permissions
from localspec.toolbox.rules import Rules

BUG, MENDED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
COMMAND = "grep -q + add.py && echo passed"


def called(name: str, **arguments: str) -> str:
    """Return a call as the double's template has it."""
    asked = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{asked}\n</tool_call>"


SCRIPT: dict[str, Any] = {
    "calls": True,
    "answers": {
        "mend": "I look." + called("read_file", path="add.py"),
        "return a - b": called("edit_file", path="add.py", old="a - b", new="a + b"),
        "is written": called("run_command", command=COMMAND),
        "passed": "It is mended.",
        "refused": "Then not.",
        "wait": called("run_command", command="echo begun > begun; sleep 60"),
        "stopped": "It was stopped.",
    },
}


def work(folder: Path, rules: Rules | None = None) -> CallRunner:
    """Return what carries out calls in a project with a bug."""
    (folder / "add.py").write_text(BUG)
    rules = rules or Rules()
    return CallRunner([BuiltIn(Folder(folder), rules)], Permissions(rules))
