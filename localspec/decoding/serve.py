"""serve: whoever asks for passes gets them, one after the other."""

from collections.abc import Generator, Mapping
from typing import TypeVar

import numpy as np

from localspec.decoding.model import LanguageModel, Logits, Pass, Role

T = TypeVar("T")
NO_ROWS: Logits = np.empty((0, 0), dtype=np.float32)
"""The answer to a pass without rows."""


def serve(asking: Generator[Pass, Logits, T], models: Mapping[Role, LanguageModel]) -> T:
    """Make the passes that are asked for, and return what comes of them.

    What a pass raises, `Cancelled` among it, is raised where it was asked for.
    """
    try:
        request = next(asking)
        while True:
            try:
                logits = made(request, models[request.role])
            except Exception as raised:
                request = asking.throw(raised)
            else:
                request = asking.send(logits)
    except StopIteration as ended:
        value: T = ended.value
        return value


def made(request: Pass, model: LanguageModel) -> Logits:
    """Make one pass."""
    if request.rows == 0:
        model.prefill(request.tokens)
        return NO_ROWS
    return model.logits(request.tokens, request.rows)
