"""The output of a batch that somebody goes on with."""

import io
import json

from lab.fuzz.target import check_message
from localspec.batch.finished import FinishedLines, whole_records
from localspec.batch.record import encoded, header
from localspec.batch.rows import FORMATS
from localspec.errors import LocalspecError

_RECEIPT = {"seed": 3, "target": "0" * 64, "build": "b", "options": "o", "draft_model": None}
_RECORD = {"line": 1, "id": "a", "text": 'x "y"\nz', "input": "00" * 8, "receipt": _RECEIPT}
_FAILED = {**_RECORD, "line": 2, "error": {"type": "UsageError", "message": "m"}}
SEEDS = (
    encoded(_RECORD, "jsonl") + encoded(_FAILED, "jsonl"),
    header("csv") + encoded(_RECORD, "csv") + encoded(_FAILED, "csv"),
    json.dumps(_RECORD).encode() + b'\n{"line": 2, ',
)


def run(data: bytes) -> None:
    for form in FORMATS:
        try:
            records = whole_records(io.BytesIO(data), form, "out")
            finished = FinishedLines(
                (each for _, each in records if each is not None), retry_failed=True
            )
            finished.digest_of(finished.last)
        except LocalspecError as error:
            check_message(str(error))
