"""Toolbox: functions that a model may call. It decides nothing: its caller has the permission already."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from localspec.calls import Tool
from localspec.messages import ToolCall, ToolResult


class Access(Enum):
    """What a call does to the machine, from the least to the most."""

    NOTHING = "nothing"
    """It computes."""
    READ = "read"
    """It reads files."""
    WRITE = "write"
    """It changes files."""
    RUN = "run"
    """It runs a program, or does what its server does not say."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a call would do, for the person who allows it.

    Args:
        access: what it needs.
        summary: one line: the function and what it would touch.
        preview: what would change, as a unified diff or the command; empty where the summary says it all.
        error: why the call cannot be made, as the model reads it; None where it can.
        subject: what it touches, as rules have it: a path in the folder, or a command; empty where rules know the
            function alone.
    """

    access: Access
    summary: str
    preview: str = ""
    error: str | None = None
    subject: str = ""


@runtime_checkable
class Starting(Protocol):
    """What takes a while until its functions are there."""

    def ready(self, stop: threading.Event) -> None:
        """Wait until they are, or are given up, or until `stop` is set."""
        ...


@runtime_checkable
class Toolbox(Protocol):
    """Functions of one origin: built-in, Python's, or a server's."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Return what can be called now."""
        ...

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call of one of `tools` would do. Nothing is changed, and nothing raised: an error is a field."""
        ...

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Carry a call out and return its result; what fails is a result as well.

        Args:
            call: of one of `tools`; its arguments need not be valid.
            stop: once set, the call and all that it started end soon.
        """
        ...

    def close(self) -> None:
        """End what it started."""
        ...
