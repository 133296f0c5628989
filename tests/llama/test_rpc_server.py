"""Whether a worker may say what is available of its RAM, on made-up devices."""

import ctypes
from typing import Any

import pytest

from localspec.errors import LocalspecError
from localspec.llama.devices import Device
from localspec.llama.rpc_server import _GET_MEMORY, _Interface, _tell_what_is_available

TOTAL = 1 << 62


NAME, DESCRIPTION = ctypes.c_char_p(b"CPU"), ctypes.c_char_p(b"a processor")
_SAID = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def says(text: ctypes.c_char_p) -> Any:
    address = ctypes.cast(text, ctypes.c_void_p).value
    return _SAID(lambda _device: address)


get_name, get_description = says(NAME), says(DESCRIPTION)


def all_is_free(_device: int, free: Any, total: Any) -> None:
    free[0] = total[0] = TOTAL


get_memory = _GET_MEMORY(all_is_free)


def device(*functions: Any) -> tuple[Device, _Interface]:
    made = _Interface(*(ctypes.cast(each, ctypes.c_void_p).value for each in functions))
    return Device("CPU", "", TOTAL, TOTAL, "CPU", ctypes.addressof(made)), made


def test_what_is_available_is_told_where_all_is_free() -> None:
    cpu, made = device(get_name, get_description, get_memory)
    _tell_what_is_available(cpu)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _GET_MEMORY(made.get_memory)(cpu.handle, ctypes.pointer(free), ctypes.pointer(total))
    assert 0 < free.value < total.value == TOTAL


@pytest.mark.parametrize(
    "functions", [(get_name, get_memory, get_description), (get_description, get_name, get_memory)]
)
def test_devices_of_another_build_are_refused_in_a_line(functions: tuple[Any, ...]) -> None:
    cpu, made = device(*functions)
    before = made.get_memory
    with pytest.raises(LocalspecError, match=r"^this build of llama.cpp .*$"):
        _tell_what_is_available(cpu)
    assert made.get_memory == before
