"""Lines of every form as they were recorded: the request that becomes of each, or what is wrong with it.

LOCALSPEC_UPDATE_SNAPSHOTS=1 writes what becomes of them now; a new row is a form of the run and the fields of a line.
"""

import json
import os
from pathlib import Path
from typing import Any

from localspec.batch.line_template import LineTemplate
from localspec.batch.request import Form, line_request
from localspec.batch.source import Line
from localspec.chat.request import Request
from localspec.errors import LocalspecError
from localspec.options import ReplyOptions, SamplingParams
from tests.support.recorded import changed_fields

CORPUS = Path(__file__).with_name("corpus.jsonl")


def form_of(run: dict[str, Any]) -> Form:
    """Return the form of a run: options, and `template`, `field`, `raw` and `system` as they are."""
    given = dict(run)
    sampling = SamplingParams(**given.pop("sampling", {}))
    template = given.pop("template", None)
    names = {each: given.pop(each) for each in ("field", "raw", "system") if each in given}
    given |= {"stop": tuple(given["stop"])} if "stop" in given else {}
    options = ReplyOptions(sampling, **given)
    return Form(options, None if template is None else LineTemplate(template, "t"), **names)


def recorded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what becomes of its line now."""
    question = {name: row[name] for name in ("run", "fields")}
    try:
        asked = line_request(Line(3, "0" * 16, row["fields"]), form_of(row["run"]), 1)
    except LocalspecError as error:
        return {**question, "refused": f"{type(error).__name__}: {error}"}
    return {**question, "asked": changed_fields(asked, Request(0))}


def test_lines_become_requests_as_recorded() -> None:
    rows = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    now = [recorded(row) for row in rows]
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        CORPUS.write_text("".join(json.dumps(row) + "\n" for row in now))
        return
    for row, new in zip(rows, now, strict=True):
        assert new == row
    assert all(row["refused"].isprintable() for row in rows if "refused" in row)
