"""JSON schemas of the kinds that people use, and a question to a model for each; and schemas that contain themselves."""

from pathlib import Path
from typing import Any

import msgspec


class Asked(msgspec.Struct):
    name: str
    schema: dict[str, Any]
    prompt: str = ""


def _rows(name: str) -> list[Asked]:
    lines = Path(__file__).with_name(name).read_bytes().splitlines()
    return [msgspec.json.decode(each, type=Asked) for each in lines]


ASKED, RECURSIVE = _rows("schemas.jsonl"), _rows("recursive.jsonl")
