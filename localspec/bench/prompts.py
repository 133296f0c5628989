"""BenchPrompt: what is answered in a bench run, and which kind of text it is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from localspec.errors import UsageError
from localspec.storage.paths import read_named, shown

_MOST_BYTES = 64 << 20
_KEYS = {"workload", "prompt"}


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One line of a prompt file."""

    workload: str
    prompt: str


def bundled() -> list[BenchPrompt]:
    """Return the program's own: ten each of code, edit, chat, summarise, extract and creative."""
    text = files("localspec.bench").joinpath("prompts.jsonl").read_text(encoding="utf-8")
    return parse(text, "prompts.jsonl")


def read(path: Path) -> list[BenchPrompt]:
    """Read a file of JSON lines, `{"workload": …, "prompt": …}` each; empty lines are skipped.

    Raises:
        ModelUnavailable: the file cannot be read.
        UsageError: a line is broken, or there is none.
    """
    return parse(read_named(path, _MOST_BYTES, "give fewer prompts"), shown(path))


def parse(text: str, name: str) -> list[BenchPrompt]:
    """Return the prompts of a text of JSON lines; `name` is how messages call it.

    Raises:
        UsageError: a line is broken, or there is none.
    """
    prompts = [
        _parsed(line, f"{name}:{number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not prompts:
        raise UsageError(
            f'{name} has no prompts: give lines like {{"workload": "…", "prompt": "…"}}'
        )
    return prompts


def per_workload(prompts: Sequence[BenchPrompt], most: int | None) -> list[BenchPrompt]:
    """Return the first `most` prompts of every kind, kinds together in the order they came up."""
    kinds: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.workload, []).append(prompt)
    return [prompt for of_kind in kinds.values() for prompt in of_kind[:most]]


def _parsed(line: str, where: str) -> BenchPrompt:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "nested too deeply"
        raise UsageError(
            f"{where}: is not valid JSON ({reason}): write one object on each line"
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f"{where}: is not an object: write {{'workload': …, 'prompt': …}}")
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        raise UsageError(f"{where}: has the unknown key {unknown[0]!r}: only workload and prompt")
    for key in sorted(_KEYS):
        if not isinstance(value.get(key), str) or not value[key].strip():
            raise UsageError(f"{where}: {key!r} is missing, empty or no text")
    return BenchPrompt(value["workload"], value["prompt"])
