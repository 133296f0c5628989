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

    Args:
        name: says what is special about it; each is there once.
        machine: of `MACHINES`.
        launch: fields of `LaunchOptions`; those of `LoadOptions` stand in `load`.
        here: models of the registry that are on the machine; with a `+` their mmproj file, too.
        wish: `parallel`, `roomy`, `least_ctx` and `others`, where they are not the usual ones.
        costs: seconds of passes by widths, by the model's name and its role; with a third item, how often they are doubted.
        command: whose words are the answer (`pull`, `doctor`, `recommend`, `choices` or `list`), with its flags; else it is a plan.
    """

    name: str
    machine: str
    launch: Mapping[str, Any] = field(default_factory=dict)
    here: tuple[str, ...] = ()
    wish: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()


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
