"""No AMX tiles: their code crashes as a common compiler makes it."""

import ctypes
import platform
import sys

import pytest

from localspec.llama.amx import _SignalStack, _small_signal_stack, avoid_amx

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18
_LINUX_ON_X86 = sys.platform == "linux" and platform.machine() == "x86_64"


def _stack_of_signals() -> tuple[int | None, int, int]:
    found = _SignalStack()
    assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found)) == 0
    return found.start, found.flags, found.size


@pytest.mark.skipif(not _LINUX_ON_X86, reason="only Linux on x86 hands out tiles")
def test_the_kernel_refuses_tiles_beside_a_small_signal_stack() -> None:
    # A kernel or processor without tiles refuses always, so this can only fail where it matters.
    with _small_signal_stack():
        assert ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES) != 0


def test_the_signal_stack_is_as_it_was() -> None:
    before = _stack_of_signals()
    with _small_signal_stack():
        assert _stack_of_signals()[2] == 2048
    assert _stack_of_signals() == before


def test_a_library_without_tiles_is_asked_no_more() -> None:
    asked = []

    def library(name: str, *_: object) -> object:
        asked.append(name)
        return lambda: 0

    avoid_amx(library)
    assert asked == ["ggml_cpu_has_amx_int8"]


def test_a_library_that_cannot_be_asked_is_left_alone() -> None:
    def library(name: str, *_: object) -> object:
        raise AttributeError(name)

    avoid_amx(library)
