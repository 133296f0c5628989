"""The cache of measurements: what it takes, what it gives back, and what it does not believe."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from localspec.calibration.calibrated import StoredCosts, _load, _path, _store, fastest
from localspec.calibration.key import Key
from localspec.decoding.costs import PassCosts
from localspec.llama.safe_widths import SafeWidths

KEY: Key = {"format": 1, "kind": "costs of a target", "file": "sha256 00", "threads": 2}
COSTS = StoredCosts(PassCosts((1, 2, 8), (0.02, 0.04, 0.1)), 1)
SAFE = SafeWidths((1, 2, 3), {4: 0.25, 5: 0.0})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data" / "calibration"


def test_what_was_stored_comes_back_by_its_key_alone(folder: Path) -> None:
    widths: Key = {**KEY, "kind": "safe widths"}
    assert _store(KEY, COSTS) == ""
    assert _load(KEY, StoredCosts) == COSTS
    assert _load({**KEY, "threads": 4}, StoredCosts) is None
    assert stat.S_IMODE(_path(KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == [_path(KEY)]
    assert msgspec.json.decode(_path(KEY).read_bytes()) == {
        "costs": {"widths": [1, 2, 8], "seconds": [0.02, 0.04, 0.1]},
        "doubts": 1,
    }
    assert _store(widths, SAFE) == ""
    assert _load(widths, SafeWidths) == SAFE


def test_every_truncation_counts_as_nothing() -> None:
    _store(KEY, COSTS)
    whole = _path(KEY).read_bytes()
    for length in range(len(whole)):
        _path(KEY).write_bytes(whole[:length])
        assert _load(KEY, StoredCosts) is None


def costs(widths: str, seconds: str, doubts: str = "0") -> bytes:
    body = f'{{"widths": {widths}, "seconds": {seconds}}}'
    return f'{{"costs": {body}, "doubts": {doubts}}}'.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"null",
        b'{"key": {}, "value": {}}',
        b"[" * 60_000,
        b" " * 70_000 + b"{}",
        costs("[1, 2]", "[0.1]"),
        costs("[1, 2]", "[0.1, 0.0]"),
        costs("[2]", "[0.1]"),
        costs("[1]", '["0.1"]'),
        costs("[1]", "[NaN]"),
        costs("[1]", "[0.1]", "null"),
        b'{"widths": [], "differences": {}}',
        b'{"widths": [2], "differences": {}}',
        b'{"widths": [1, 2], "differences": {"2": 0.1}}',
        b'{"widths": [1], "differences": {"two": 0.1}}',
    ],
)
def test_foreign_and_absurd_content_counts_as_nothing(content: bytes) -> None:
    _store(KEY, COSTS)
    _path(KEY).write_bytes(content)
    assert _load(KEY, StoredCosts) is None
    assert _load(KEY, SafeWidths) is None


def test_what_is_no_file_is_not_read() -> None:
    _store(KEY, COSTS)
    _path(KEY).unlink()
    os.mkfifo(_path(KEY))  # reading it would wait for ever
    assert _load(KEY, StoredCosts) is None
    _path(KEY).unlink()
    _path(KEY).mkdir()
    assert _load(KEY, StoredCosts) is None


def test_many_at_once_leave_one_whole_entry(folder: Path) -> None:
    def write(seconds: float) -> bool:
        _store(KEY, StoredCosts(PassCosts((1,), (seconds,))))
        return _load(KEY, StoredCosts) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, [index / 1000 for index in range(1, 200)]))
    assert len(list(folder.iterdir())) == 1


def test_of_two_measurements_the_lower_cost_of_each_width_counts() -> None:
    one, other = PassCosts((1, 2, 8), (2.0, 9.0, 9.0)), PassCosts((1, 2, 4), (3.0, 4.0, 5.0))
    assert fastest(one, other) == PassCosts((1, 2, 4, 8), (2.0, 4.0, 5.0, 9.0))
