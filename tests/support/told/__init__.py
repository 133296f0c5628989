"""A compiler of grammars that does what it is told; see `sitecustomize` beside this."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.grammar import compiler

KINDS = ("sleep", "grow", "die")


def told(what: str, number: int = 0) -> dict[str, Any]:
    """Return a harmless schema whose compiler sleeps, spins, grows or dies."""
    return {"type": "string", "enum": [f"told to {what} {number}", "b"]}


def environment(clock_s: float | None = 1.0) -> dict[str, str]:
    """Return what a program needs in its environment, so that its compiler does what it is told."""
    here = str(Path(__file__).parent)
    known = os.environ.get("PYTHONPATH")
    clock = {} if clock_s is None else {"TOLD_CLOCK_S": str(clock_s)}
    path = f"{here}{os.pathsep}{known}" if known else here
    return {"PYTHONPATH": path, "TOLD_BY": str(os.getpid()), **clock}


@contextmanager
def told_compiler(clock_s: float = 1.0) -> Iterator[None]:
    """Let the compilers of this process, and of those that it starts, do what they are told."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(clock_s).items():
            patch.setenv(name, value)
        patch.setattr(compiler, "_compiler", own := compiler._Compiler())
        try:
            yield
        finally:
            own.end()
