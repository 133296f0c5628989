"""Lines of a batch, as JSON lines and as CSV."""

import io
import json

from lab.fuzz.target import check_message
from localspec.batch.record import Receipt, encoded, error_fields, record_of
from localspec.batch.request import Form, line_id, line_request
from localspec.batch.source import FORMATS, parsed, split_lines
from localspec.errors import LocalspecError
from localspec.options import ReplyOptions

SEEDS = tuple(
    each.encode()
    for each in (
        '{"prompt": "Hi", "id": 1, "temperature": 0.5, "stop": ["a"], "seed": 3, "max_tokens": 5}\n\n{"prompt": 1}\n',
        '{"id": "a", "messages": [{"role": "user", "content": [{"type": "text", "text": "b"}]}], "system": "c"}\n',
        '{"custom_id": "x", "url": "/v1/completions", "body": {"model": "m", "prompt": "p", "logit_bias": {"1": 2}}}\n',
        '{"body": {"messages": [{"role": "developer", "content": "a"}, {"role": "assistant", "content": ""}]}}\n',
        'prompt,id,temperature,top_k\n"a ""b""\nc",1,0.5,40\nd,,x,\n',
        "\ufeffid,prompt\r\n1,2\r\n",
        '{"prompt": "a", "reply_options": {"top_k": 1, "system": "b"}}\n{"prompt": "c", "reply_options": "{}"}\n',
    )
)
_RECEIPT = Receipt(1, "0" * 64, "1", "2")


def run(data: bytes) -> None:
    for form in FORMATS:
        try:
            _take(data, form)
        except LocalspecError as error:
            check_message(str(error))


def _take(data: bytes, form: str) -> None:
    lines = split_lines(io.BytesIO(data), most_bytes=2000)
    for line in parsed(lines, form, "in", "prompt"):  # type: ignore[arg-type]
        number = None
        try:
            number = line_id(line)
            line_request(line, Form(ReplyOptions()), seed=7)
        except LocalspecError as error:
            check_message(str(error))
            json.loads(encoded(record_of(line, number, _RECEIPT, **error_fields(error))))
