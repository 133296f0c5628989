"""The questions of the golden table: what is asked for on which machine, with which models there, and what was measured of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.messages import Held

TABLE = Path(__file__).with_name("golden.jsonl")


@dataclass(frozen=True, slots=True)
class Case:
    """A row's question, as the table has it; a new one is a row without an answer.

    `launch` has fields of `LaunchOptions`, with those of `LoadOptions` in `load`; `wish` has `parallel`, `roomy`, `least_ctx`
    and `others`; `costs` are seconds of passes by widths, by the model's name and its role, and how often they are doubted.
    """

    name: str  # says what is special about it; each is there once
    machine: str  # of `MACHINES`
    launch: Mapping[str, Any] = field(default_factory=dict)
    here: tuple[str, ...] = ()  # models of the registry; with a `+` their mmproj file, too
    wish: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()  # whose words are the answer, with its flags; else it is a plan


def _case(line: str) -> Case:
    row = json.loads(line)
    asked = {name: _frozen(row[name]) for name in Case.__dataclass_fields__ if name in row}
    if "others" in asked.get("wish", {}):
        asked["wish"]["others"] = Held(**asked["wish"]["others"])
    return Case(**asked)


def _frozen(value: Any) -> Any:
    """Return a value of JSON with tuples in place of its lists, as options have them."""
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


CASES = tuple(map(_case, TABLE.read_text().splitlines()))
