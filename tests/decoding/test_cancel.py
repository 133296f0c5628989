import ctypes

from localspec.decoding.cancel import CancelFlag


def test_flag_is_clear_until_it_is_set() -> None:
    flag = CancelFlag()
    assert not flag.is_set
    flag.set()
    flag.set()
    assert flag.is_set
    flag.clear()
    assert not flag.is_set


def test_native_code_reads_the_flag_as_a_c_string() -> None:
    flag = CancelFlag()
    assert ctypes.string_at(flag.address) == b""
    flag.set()
    assert ctypes.string_at(flag.address) == b"\x01"
    assert flag.address == flag.address


def test_flags_do_not_share_their_byte() -> None:
    one, other = CancelFlag(), CancelFlag()
    one.set()
    assert not other.is_set
