"""What a process is not allowed: room on the disk, memory, writing where it has no right to.

Run as a program, it applies the limits that its first argument names and becomes the command that follows.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_PR_CAPBSET_DROP = 24
_OVERRIDES = (1, 2, 3)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process and of whatever it starts.

    Args:
        file_bytes: longest file that it may write, as where a disk is full; None is no limit.
        memory_bytes: of address space; None is no limit.
        ordinary: root has no right to what modes forbid.
    """

    file_bytes: int | None = None
    memory_bytes: int | None = None
    ordinary: bool = False

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs one under these limits."""
        return [sys.executable, "-S", __file__, json.dumps(asdict(self)), *command]

    def apply(self) -> None:
        """Apply them to this process; what it execs keeps them."""
        for kind, most in (
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_AS, self.memory_bytes),
        ):
            if most is not None:
                resource.setrlimit(kind, (most, most))
        if self.ordinary and os.geteuid() == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            for capability in _OVERRIDES:
                if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                    raise OSError(ctypes.get_errno(), "a capability cannot be dropped")


NONE = Limits()


if __name__ == "__main__":
    # Whoever runs the trials in a shell's background, or by nohup, would hand on what is ignored there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    Limits(**json.loads(sys.argv[1])).apply()
    os.execv(sys.argv[2], sys.argv[2:])
