"""BenchPrompt: what is answered in a bench run, and which kind of text it is."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec

from localspec.api import UsageError, printable_line
from localspec.storage.paths import read_named, shown

_MOST_BYTES = 64 << 20
_FORM = '{"workload": "…", "prompt": "…"}'
_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class BenchPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a prompt file."""

    workload: _Text
    prompt: _Text


def bundled() -> list[BenchPrompt]:
    """Return the program's own: ten each of code, edit, chat, summarise, extract and creative."""
    text = files("localspec.plugins.bench").joinpath("prompts.jsonl").read_text(encoding="utf-8")
    return parse(text, "prompts.jsonl")


def read(path: Path) -> list[BenchPrompt]:
    """Read a file of JSON lines, `{"workload": …, "prompt": …}` each; empty lines are skipped.

    Raises:
        UsageError: the file cannot be read, a line is broken, or there is none.
    """
    return parse(read_named(path, _MOST_BYTES, "give fewer prompts"), shown(path))


def parse(text: str, name: str) -> list[BenchPrompt]:
    """Return the prompts of a text of JSON lines; `name` is how messages call it.

    Raises:
        UsageError: a line is broken, or there is none.
    """
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                prompts.append(msgspec.json.decode(line, type=BenchPrompt))
            except (msgspec.DecodeError, RecursionError) as error:
                reason = printable_line(str(error))
                raise UsageError(f"{name}:{number}: {reason}: write {_FORM}") from None
    if not prompts:
        raise UsageError(f"{name} has no prompts: give lines like {_FORM}")
    return prompts


def per_workload(prompts: Sequence[BenchPrompt], most: int | None) -> list[BenchPrompt]:
    """Return the first `most` prompts of every kind, kinds together in the order they came up."""
    kinds: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.workload, []).append(prompt)
    return [prompt for of_kind in kinds.values() for prompt in of_kind[:most]]
