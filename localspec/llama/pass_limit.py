"""PassLimit: passes on a device that cannot be stopped are waited for, and those of a prompt are made short.

llama.cpp asks at every node of a graph whether to stop, but on a CPU only. Anything else gets the whole graph, and
`llama_decode` returns as soon as that is sent if no row of the pass is wanted. To a worker any number of graphs is sent ahead:
a long prompt would be there at once, and a cancel would wait for all of it.
"""

import ctypes
import time
from collections.abc import Callable

from localspec.llama.backend import library_function
from localspec.llama.devices import REMOTE, Device, placed_on
from localspec.llama.native import native
from localspec.options import LoadOptions

_FIRST, _LEAST = 64, 32
"""Tokens of a pass before anything was measured, and where they take long: narrower ones mostly read weights."""
_GROWTH = 4


class PassLimit:
    """Waits for passes, and learns how many tokens of a prompt are evaluated in the time that a cancel may take.

    Args:
        wait: returns when everything that was sent is computed.
        most: most tokens of a pass.
        pass_s: seconds that a pass of a prompt may take; None makes them all as wide as may be, so that nothing depends on time.
        clock: seconds, monotonic.

    Attributes:
        tokens: of the next pass of a prompt.
    """

    def __init__(
        self,
        wait: Callable[[], None],
        most: int,
        pass_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait, self._most, self._pass_s, self._clock = wait, most, pass_s, clock
        self.tokens = most if pass_s is None else min(most, _FIRST)

    def done(self, count: int, start_s: float) -> None:
        """Wait for a pass without rows.

        Args:
            count: its tokens.
            start_s: when it was sent.
        """
        self._wait()
        if self._pass_s is None:
            return
        took_s = max(self._clock() - start_s, 1e-6)
        if count < self.tokens // 2 and took_s < self._pass_s:
            return  # of a short pass, most is no token's
        fitting = int(count * self._pass_s / took_s) // _LEAST * _LEAST
        self.tokens = min(self._most, max(_LEAST, min(fitting, _GROWTH * count)))


def queued_on(
    options: LoadOptions, context: int, most: int, pass_s: float | None
) -> PassLimit | None:
    """Return what waits for the passes of a context; None where all of them can be stopped.

    Args:
        options: that its model was loaded with.
        context: llama.cpp's pointer.
        most: most tokens of a pass.
        pass_s: as of `PassLimit`.
    """
    unstoppable = [each for each in placed_on(options) if not _stops(each)]
    if not unstoppable:
        return None
    remote = [each.handle for each in unstoppable if each.backend == REMOTE]

    def wait() -> None:
        native.llama_synchronize(context)  # of a worker, it waits until all is sent
        for each in remote:
            _answer_of(each)

    return PassLimit(wait, most, pass_s)


def _stops(device: Device) -> bool:
    """Return whether llama.cpp can tell a device's backend what to ask whether to stop."""
    pointer = ctypes.c_void_p
    registry = library_function("ggml_backend_dev_backend_reg", pointer, pointer)
    find = library_function("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
    return bool(find(registry(device.handle), b"ggml_backend_set_abort_callback"))


def _answer_of(device: int) -> None:
    """Ask a worker something that it answers after all that it was sent before."""
    size = ctypes.c_size_t
    ask = library_function(
        "ggml_backend_dev_memory", None, ctypes.c_void_p, *2 * [ctypes.POINTER(size)]
    )
    ask(device, ctypes.byref(size()), ctypes.byref(size()))
