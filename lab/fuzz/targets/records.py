"""The output of a batch that somebody goes on with."""

import io
import json

from lab.fuzz.target import check_message
from localspec.batch.output import whole_records
from localspec.batch.record import encoded
from localspec.errors import LocalspecError

_RECEIPT = {"seed": 3, "target": "0" * 64, "build": "b", "options": "o", "draft_model": None}
_RECORD = {"line": 1, "id": "a", "text": 'x "y"\nz', "input": "00" * 8, "receipt": _RECEIPT}
_FAILED = {**_RECORD, "line": 2, "error": {"type": "UsageError", "message": "m"}}
SEEDS = (
    encoded(_RECORD) + encoded(_FAILED),
    json.dumps(_RECORD).encode() + b'\n{"line": 2, ',
)


def run(data: bytes) -> None:
    try:
        for _ in whole_records(io.BytesIO(data), "out"):
            pass
    except LocalspecError as error:
        check_message(str(error))
