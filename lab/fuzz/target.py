"""What every target is held to, and where those that read files have them."""

import atexit
import importlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from localspec.errors import LocalspecError

MOST_S = 1.0
"""CPU time that one input may take; CPU time, since a busy machine is no hang."""
_STOP = 5.0
"""Times that bound, after which an input is interrupted."""
MOST_MESSAGE_CHARS = 4000


class FoundError(Exception):
    """An input showed a bug; the text says which."""


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of input."""

    name: str
    seeds: Sequence[bytes]
    run: Callable[[bytes], None]
    most_s: float = MOST_S

    def check(self, data: bytes) -> None:
        """Give it an input, and raise where it is not taken as it should be."""
        begun_s = time.thread_time()
        before = signal.signal(signal.SIGVTALRM, _stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, _STOP * self.most_s)
        try:
            self.run(data)
        except LocalspecError as error:
            check_message(str(error))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        took_s = time.thread_time() - begun_s
        if took_s > self.most_s:
            raise FoundError(f"it took {took_s:.1f} s")


def _stop(*_: object) -> None:
    # No Exception, so that nothing on the way takes it for a failure of its own.
    raise KeyboardInterrupt(f"it took more than {_STOP:.0f} times what it may")


def check_message(text: str) -> None:
    """Raise where a message would mess up a terminal, or fill it."""
    if not text or len(text) > MOST_MESSAGE_CHARS or not text.isprintable():
        raise FoundError(f"a message that nobody can read: {text[:200]!r}")


def load(name: str) -> Target:
    """Return a target by its name."""
    module = importlib.import_module(f"lab.fuzz.targets.{name}")
    return Target(name, module.SEEDS, module.run, getattr(module, "MOST_S", MOST_S))


@cache
def scratch() -> Path:
    """Return this process's folder, in memory where the system has one; it goes with the process."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="localspec-fuzz-", dir=place))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
