"""Has the process that compiles grammars do what a constant of a harmless schema tells it; imported by Python itself.

A text of a grammar that has `told to sleep`, `told to spin`, `told to grow` or `told to die` in it does that. TOLD_CLOCK_S
shortens the time by the clock that the process has.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

if Path(sys.orig_argv[-1]).name == "compiler_process.py":
    from localspec import bounded_process

    _answer_questions = bounded_process.answer_questions
    _set_timer = signal.setitimer
    _CLOCK_S = float(os.environ.get("TOLD_CLOCK_S", "inf"))

    def _do(what: str) -> None:
        while "to sleep" in what:
            time.sleep(1)
        while "to spin" in what:
            sum(range(10_000))
        held: list[bytes] = []
        while "to grow" in what:
            held.append(bytes(1 << 26))
        if "to die" in what:
            os.kill(os.getpid(), signal.SIGKILL)

    def _told(answer: Any) -> None:
        def obeyed(question: Any) -> Any:
            if "told to" in question[0]:
                _do(question[0])
            return answer(question)

        _answer_questions(obeyed)

    def _sooner(which: int, seconds: float) -> Any:
        return _set_timer(which, min(seconds, _CLOCK_S) if which == signal.ITIMER_REAL else seconds)

    bounded_process.answer_questions = _told
    signal.setitimer = _sooner  # type: ignore[assignment]
