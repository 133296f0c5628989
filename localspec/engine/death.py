"""How a process ended, in words for one line."""

import signal

from localspec.display import printable

_WORDS = {
    "SIGKILL": "was killed (SIGKILL), most likely because memory ran out: "
    "restart it with a smaller pair, or a smaller --ctx",
    "SIGSEGV": "crashed (SIGSEGV)",
    "SIGBUS": "crashed (SIGBUS)",
    "SIGABRT": "gave up (SIGABRT)",
    "SIGILL": "crashed (SIGILL): llama.cpp was built for another CPU",
    "SIGTERM": "was told to end (SIGTERM)",
}


def cause_of_death(code: int, stderr: bytes) -> str:
    """Return one line.

    Args:
        code: as `Popen` has it, negative for a signal.
        stderr: the end of what it wrote there.
    """
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        told = _WORDS.get(name, f"was ended by {name}")
    else:
        told = f"ended by itself (exit code {code})"
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    detail = printable(last)[:300]
    return f"the engine {told}" + (f"; its last words: {detail}" if detail else "")
