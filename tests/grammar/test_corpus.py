"""Schemas and grammars as they were recorded: what each takes and what it does not, or why it cannot be kept, with the place.

LOCALSPEC_UPDATE_SNAPSHOTS=1 writes the errors of now. `valid` and `invalid` are what a validator of JSON schemas says of values.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, texts
from tests.grammar.judge import Judge

CORPUS = Path(__file__).with_name("corpus.jsonl")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text().splitlines()]
KEPT = [row for row in ROWS if "error" not in row]


def options_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the option of a row; a schema as the text that a user writes."""
    if "grammar" in row:
        return {"grammar": row["grammar"]}
    return {"json_schema": json.dumps(row["json_schema"], ensure_ascii=False)}


@pytest.mark.parametrize("row", KEPT, ids=lambda row: str(row)[:60])
def test_what_is_taken_and_what_is_not(row: dict[str, Any]) -> None:
    options, is_text = options_of(row), "grammar" in row
    for name, wanted in (("takes", True), ("refuses", False)):
        for each in row[name]:
            assert takes(each if is_text else json.dumps(each), **options) is wanted, each
    if "valid" in row:
        judge = Judge(row["json_schema"])
        assert all(judge.valid(each) for each in row["valid"])
        assert not any(judge.valid(each) for each in row.get("invalid", ()))
        if "invalid" in row:
            assert all(judge.valid(json.loads(text)) for text in texts(6, **options))


def test_what_cannot_be_kept_is_named_with_its_place() -> None:
    for row in ROWS:
        if "error" not in row:
            continue
        with pytest.raises(UsageError) as caught:
            require_sound(ReplyOptions(**options_of(row)))
        said = str(caught.value)
        assert said.isprintable()
        assert len(said) < 420
        if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
            row["error"] = said
        assert said == row["error"]
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        CORPUS.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
