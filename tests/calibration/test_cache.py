"""The cache of measurements: what it takes, what it gives back, and what it does not believe."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calibration.key import Key, digest_of, load, store
from localspec.calibration.values import (
    KeptCosts,
    costs_from_json,
    costs_to_json,
    fastest,
    widths_from_json,
    widths_to_json,
)
from localspec.decoding.costs import PassCosts
from localspec.llama.safe_widths import SafeWidths

KEY: Key = {"format": 1, "kind": "costs of a target", "file": "sha256 00", "threads": 2}
COSTS = KeptCosts(PassCosts((1, 2, 8), (0.02, 0.04, 0.1)), 1)
SAFE = SafeWidths((1, 2, 3), {4: 0.25, 5: 0.0})


def path_of(directory: Path, key: Key = KEY) -> Path:
    return directory / f"{digest_of(key)}.json"


def test_what_was_stored_comes_back(tmp_path: Path) -> None:
    store(tmp_path, KEY, costs_to_json(COSTS))
    assert costs_from_json(load(tmp_path, KEY)) == COSTS
    store(tmp_path, {**KEY, "kind": "safe widths"}, widths_to_json(SAFE))
    assert widths_from_json(load(tmp_path, {**KEY, "kind": "safe widths"})) == SAFE
    assert costs_from_json(load(tmp_path, KEY)) == COSTS


def test_another_key_finds_nothing(tmp_path: Path) -> None:
    store(tmp_path, KEY, costs_to_json(COSTS))
    assert load(tmp_path, {**KEY, "threads": 4}) is None
    assert load(tmp_path / "nowhere", KEY) is None


def test_files_are_readable_by_their_owner_only_and_nothing_is_left_beside_them(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "deep" / "calibration"
    store(directory, KEY, costs_to_json(COSTS))
    assert stat.S_IMODE(path_of(directory).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert list(directory.iterdir()) == [path_of(directory)]


def test_an_entry_of_another_key_under_our_name_is_foreign(tmp_path: Path) -> None:
    store(tmp_path, {**KEY, "format": 2}, costs_to_json(COSTS))
    path_of(tmp_path, {**KEY, "format": 2}).rename(path_of(tmp_path))
    assert load(tmp_path, KEY) is None


def test_every_truncation_counts_as_nothing(tmp_path: Path) -> None:
    store(tmp_path, KEY, costs_to_json(COSTS))
    whole = path_of(tmp_path).read_bytes()
    for length in range(len(whole)):
        path_of(tmp_path).write_bytes(whole[:length])
        assert load(tmp_path, KEY) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"7",
        b'{"key": 1}',
        b'{"value": {}}',
        b"[" * 60_000,
        b" " * 70_000 + b"{}",
        b"9" * 20_000,
    ],
)
def test_foreign_content_counts_as_nothing(tmp_path: Path, content: bytes) -> None:
    path_of(tmp_path).write_bytes(content)
    assert load(tmp_path, KEY) is None


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(path_of(tmp_path))  # reading it would wait for ever
    assert load(tmp_path, KEY) is None
    path_of(tmp_path).unlink()
    path_of(tmp_path).mkdir()
    assert load(tmp_path, KEY) is None


def test_a_failed_write_leaves_the_old_entry_and_nothing_beside_it(tmp_path: Path) -> None:
    store(tmp_path, KEY, costs_to_json(COSTS))
    with pytest.raises(TypeError):
        store(tmp_path, KEY, {"widths": object()})
    assert costs_from_json(load(tmp_path, KEY)) == COSTS
    assert list(tmp_path.iterdir()) == [path_of(tmp_path)]


def test_many_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    def write(seconds: float) -> bool:
        store(tmp_path, KEY, costs_to_json(KeptCosts(PassCosts((1,), (seconds,)))))
        return costs_from_json(load(tmp_path, KEY)) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, [index / 1000 for index in range(1, 200)]))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("widths", "seconds"),
    [
        ([1, 2], [0.1]),
        ([], []),
        ([2, 3], [0.1, 0.1]),
        ([1, 3, 2], [0.1, 0.1, 0.1]),
        ([1, 1], [0.1, 0.1]),
        ([1, 2], [0.1, 0.0]),
        ([1, 2], [0.1, -0.1]),
        ([1, 2], [0.1, float("nan")]),
        ([1, 2], [0.1, float("inf")]),
        ([1, 2], [0.1, 1000.1]),
        ([1, 2], [0.1, "0.1"]),
        ([1, 2], [0.1, None]),
        ([1, 2], [True, True]),
        ([True, 2], [0.1, 0.1]),
        ([1.0, 2.0], [0.1, 0.1]),
        ([1, 1 << 40], [0.1, 0.1]),
        ("12", [0.1, 0.1]),
        (None, None),
        ({"1": 1}, {"1": 0.1}),
    ],
)
def test_absurd_costs_are_not_believed(widths: object, seconds: object) -> None:
    value = json.loads(json.dumps({"widths": widths, "seconds": seconds, "doubts": 0}))
    assert costs_from_json(value) is None


@pytest.mark.parametrize("doubts", [-1, 3, 0.0, True, "1", None])
def test_absurd_doubts_are_not_believed(doubts: object) -> None:
    assert costs_from_json({"widths": [1], "seconds": [0.1], "doubts": 2}) is not None
    assert costs_from_json({"widths": [1], "seconds": [0.1], "doubts": doubts}) is None


def test_of_two_measurements_the_lower_cost_of_each_width_counts() -> None:
    one, other = PassCosts((1, 2, 8), (2.0, 9.0, 9.0)), PassCosts((1, 2, 4), (3.0, 4.0, 5.0))
    assert fastest(one, other) == PassCosts((1, 2, 4, 8), (2.0, 4.0, 5.0, 9.0))


@pytest.mark.parametrize(
    "value",
    [
        {"widths": [1, 2]},
        {"widths": [], "differences": {}},
        {"widths": [2], "differences": {}},
        {"widths": [1, 1], "differences": {}},
        {"widths": [1, 2], "differences": {"2": 0.1}},
        {"widths": [1], "differences": {"2": -0.1}},
        {"widths": [1], "differences": {"2": float("nan")}},
        {"widths": [1], "differences": {"two": 0.1}},
        {"widths": [1], "differences": {"1": 0.1}},
        {"widths": [1], "differences": [2]},
        {"widths": [1], "differences": {"2": "0.1"}},
    ],
)
def test_absurd_safe_widths_are_not_believed(value: object) -> None:
    assert widths_from_json(value) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["widths", "seconds", "doubts", "differences", "1", "2"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_json_holds_is_a_measurement_or_nothing(value: object) -> None:
    costs = costs_from_json(value)
    assert costs is None or costs.costs.of(1) > 0
    safe = widths_from_json(value)
    assert safe is None or safe.widths[0] == 1
