"""Outcomes of stages: one JSON file that is written after each of them, and a page in Markdown."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.storage.files import write_atomic
from localspec.storage.paths import shown

DONE, FAILED, CUT_SHORT = "done", "failed", "cut short"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one stage.

    Args:
        status: `done`, `cut short` where its time was over and it had printed something, or `failed`.
        seconds: that it took.
        found: what it printed as JSON, one object or several.
        complaint: its last line where it is not done.
    """

    status: str
    seconds: float
    found: Sequence[Mapping[str, Any]] = ()
    complaint: str = ""


def read(path: Path) -> dict[str, Outcome]:
    """Return outcomes by the names of stages; none if there is no file.

    Raises:
        LocalspecError: the file is there, and holds something else.
    """
    if not path.exists():
        return {}
    try:
        return {name: Outcome(**each) for name, each in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise LocalspecError(
            f"{shown(path)} is no campaign's: give another --out, or remove it"
        ) from None


def write(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write outcomes, and the page beside them."""
    document = {name: asdict(each) for name, each in outcomes.items()}
    write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())
    write_atomic(path.with_suffix(".md"), page(outcomes).encode())


def page(outcomes: Mapping[str, Outcome]) -> str:
    """Return the page: a section for each stage, with all that it printed."""
    lines = ["# GPU campaign", ""]
    for name, each in outcomes.items():
        status = "" if each.status == DONE else f", {each.status}: {_cell(each.complaint)}"
        lines += [f"## {name}", "", f"{each.seconds:.0f} s{status}", ""]
        found = each.found[0] if len(each.found) == 1 else list(each.found)
        lines += [*_section(found), ""]
    spent = sum(each.seconds for each in outcomes.values())
    failed = sum(each.status == FAILED for each in outcomes.values())
    lines.append(f"{len(outcomes)} stages, {spent / 60:.1f} minutes, {failed} failed.")
    return "\n".join(lines) + "\n"


def _section(value: object) -> Iterator[str]:
    """Yield tables of lists and dicts of objects, and a line for each other field."""
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        value = [{"": name, **each} for name, each in value.items()]
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        heads = list(dict.fromkeys(name for each in value for name in each))
        yield f"| {' | '.join(heads)} |"
        yield "|---" * len(heads) + "|"
        for each in value:
            yield f"| {' | '.join(_cell(each.get(name, '')) for name in heads)} |"
    elif isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, dict | list) and each and not _is_flat(each):
                yield from ("", f"{name}:", "", *_section(each), "")
            else:
                yield f"- {name}: {_cell(each)}"
    elif value:
        yield _cell(value)


def _is_flat(value: dict[str, object] | list[object]) -> bool:
    its = value.values() if isinstance(value, dict) else value
    return not any(isinstance(each, dict) for each in its)


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "/")
