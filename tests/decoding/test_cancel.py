import ctypes

import pytest

from localspec.decoding.cancel import CancelFlag


def test_native_code_reads_a_flag_as_a_c_string_that_it_does_not_share() -> None:
    flag, other = CancelFlag(), CancelFlag()
    assert ctypes.string_at(flag.address) == b""
    flag.set()
    flag.set()
    assert ctypes.string_at(flag.address) == b"\x01"
    assert (flag.is_set, other.is_set) == (True, False)
    flag.clear()
    assert not flag.is_set


def test_an_interrupted_flag_is_set_until_it_is_resumed_but_does_not_stop_all() -> None:
    flag = CancelFlag()
    flag.interrupt()
    assert (flag.is_set, flag.stops_all) == (True, False)
    assert len(ctypes.string_at(flag.address)) == 1
    flag.resume()
    assert not flag.is_set


@pytest.mark.parametrize("set_first", [True, False])
def test_resuming_does_not_undo_that_everything_is_to_stop(set_first: bool) -> None:
    flag = CancelFlag()
    for ask in (flag.set, flag.interrupt) if set_first else (flag.interrupt, flag.set):
        ask()
    flag.resume()
    assert flag.stops_all
    flag.clear()
    assert not flag.is_set
