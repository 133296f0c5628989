"""What the C library keeps of memory that was freed, and how to have it given back to the system."""

import ctypes
from collections.abc import Callable


def _malloc_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not GNU's library, or not even POSIX
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found


_TRIM = _malloc_trim()


def give_back_memory() -> None:
    """Give what was freed back to the system, where the C library does not by itself.

    GNU's takes blocks below a bound from the system one by one, and raises the bound, up to 32 MB, with every such block
    that is freed; from then on caches and buffers of a model come from the heap, which stays as large as it ever was.
    """
    if _TRIM is not None:
        _TRIM(0)
