"""A file of measurements."""

from lab.fuzz.scratch import scratch
from localspec.calibration.key import Key, digest_of, load
from localspec.calibration.values import costs_from_json, widths_from_json

_KEY: Key = {"kind": "a"}
_NAME = f"{digest_of(_KEY)}.json"
SEEDS = (
    b'{"key": {"kind": "a"}, "value": {"widths": [1, 2, 4], "seconds": [0.1, 0.2, 0.3], "doubts": 1}}',
    b'{"key": {"kind": "a"}, "value": {"widths": [1, 2], "differences": {"4": 0.5, "8": 1e-3}}}',
    b'{"key": {"kind": "a"}, "value": {"widths": [true], "seconds": [NaN, 1e999], "doubts": -1}}',
    b'{"key": {"kind": "a"}, "value": {"widths": "12", "differences": {"1_0": Infinity}}}',
)


def run(data: bytes) -> None:
    (scratch() / _NAME).write_bytes(data)
    value = load(scratch(), _KEY)
    kept = costs_from_json(value)
    if kept is not None:
        for width in (1, 3, 5000):
            assert kept.costs.of(width) > 0
    safe = widths_from_json(value)
    if safe is not None:
        assert safe.widths[0] == 1
