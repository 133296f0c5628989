"""A wall clock that is wrong: on the path of a process, it sees the time that LOCALSPEC_WRONG_CLOCK names.

`past` is 1970, `future` 2096, `jumping` goes to and fro by up to ten years from one look to the next.
"""

import datetime
import os
import random
import time

_DECADE_S = 315_576_000.0
_HOW = os.environ.get("LOCALSPEC_WRONG_CLOCK", "")
_right, _right_ns = time.time, time.time_ns
_chance = random.Random(0)


def _offset_s() -> float:
    if _HOW == "past":
        return 1000.0 - _right()
    return 7 * _DECADE_S if _HOW == "future" else _chance.uniform(-_DECADE_S, _DECADE_S)


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Datetime":
        return cls.fromtimestamp(time.time(), tz)


if _HOW:
    time.time = lambda: _right() + _offset_s()
    time.time_ns = lambda: _right_ns() + int(1e9 * _offset_s())
    datetime.datetime = _Datetime  # type: ignore[misc]
