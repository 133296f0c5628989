"""`--tools`: functions that a model may call in the current folder, and the question before a call."""

import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from localspec.calls.policy import WITH_APPROVAL, CallPolicy
from localspec.chat.events import Reply
from localspec.chat.request import Request
from localspec.cli.options import several, switch, tool_rules
from localspec.cli.prompt import DocsFlags, SystemFlags
from localspec.display import clean, duration_text, notice, printable, shortened_lines
from localspec.messages import Message, ToolCall

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner, CarriedOut

_LOOK_S = 0.05
_MOST_PRESSED = 64
_UNREAD_S = 0.3


@dataclass(frozen=True, slots=True)
class ToolFlags:
    """Flags that let a model call functions.

    Args:
        tools: Let the model use files and commands in this folder; it asks first. It can read, search and change files.
        mcp: Start an MCP server, and let the model call its tools. Can be repeated; implies --tools.
    """

    tools: bool = switch()
    mcp: tuple[str, ...] = several("COMMAND")
    tool_rules: CallPolicy = tool_rules()

    @property
    def wanted(self) -> bool:
        """Whether a model may call anything."""
        return bool(self.tools or self.mcp)


@dataclass(frozen=True, slots=True)
class ChatFlags:
    """The groups of flags that `chat` and `run` have in common."""

    system: SystemFlags
    docs: DocsFlags
    tools: ToolFlags

    def runner(self, *, offline: bool) -> "CallRunner | None":
        """Return the runner of calls in the current folder, with an index that may be searched; None if nothing may be called.

        Args:
            offline: use no server on the network.

        Raises:
            UsageError: the folder contains localspec's own settings or conversations, or the rules or servers cannot be read.
        """
        if not self.tools.wanted:
            return None
        # Imported here: most conversations call nothing.
        from localspec.session.approval import open_runner  # noqa: PLC0415

        functions = [self.docs.check().search_docs] if self.docs.docs else []
        policy = WITH_APPROVAL.under(self.tools.tool_rules)
        return open_runner(Path.cwd(), self.tools.mcp, functions, policy, offline=offline)


def typed_answer(text: str) -> str:
    """Ask a person at the terminal; input from before the question is dropped.

    Raises:
        EOFError: there is no answer.
    """
    import termios  # noqa: PLC0415 - only with a terminal

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    click.echo(text, err=True, nl=False)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def pressed_answer(text: str, stopped: Callable[[], bool] = lambda: False) -> str:
    """Ask a person at the terminal for a key; after `n`, for a line that says why.

    Args:
        text: the question. Keys that are pressed in its first moments are dropped.
        stopped: returns True when the answer is not needed any more.

    Raises:
        EOFError: there is no answer.
    """
    import termios  # noqa: PLC0415 - only with a terminal
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        click.echo(text, err=True, nl=False)
        time.sleep(_UNREAD_S)
        termios.tcflush(descriptor, termios.TCIFLUSH)
        _wait_for_input(stopped)
        pressed = os.read(descriptor, _MOST_PRESSED).decode(errors="replace")
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
    if pressed in {"", "\x04", "\x1b"}:  # the end, Ctrl-D, Esc
        click.echo(err=True)
        raise EOFError
    click.echo(printable(pressed.strip()), err=True, nl=pressed not in {"n", "N"})
    if pressed in {"n", "N"}:
        _wait_for_input(stopped)
        pressed += f" {sys.stdin.readline()}"
    return pressed


def _wait_for_input(stopped: Callable[[], bool]) -> None:
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if stopped():
            raise EOFError


class RepliesAndCalls:
    """The replies to one question of `run`, and the calls between them.

    Args:
        runner: carries out calls; None if nothing may be called.
        quiet: print only calls that are refused because there is no terminal.

    Attributes:
        items: replies, and the results of their calls, in order.
        stopped: whether the user stopped a call.
    """

    def __init__(self, runner: "CallRunner | None", *, quiet: bool) -> None:
        self._quiet = quiet
        self._runner = runner
        self.items: list[Reply | CarriedOut] = []
        self.stopped = False

    def last_reply(
        self, request: Request, reply: Callable[[Request], Reply], stopped: Callable[[], bool]
    ) -> Reply:
        """Return the last reply to a question, after all calls that it led to.

        Args:
            request: the question.
            reply: answers it, and writes the answer.
            stopped: returns True once the user interrupts.
        """
        runner = self._runner
        if runner is None:
            return self._add(reply(request))
        self._notify(*runner.notes)
        messages = request.messages
        try:
            runner.wait(stopped)
            runner.begin()
            while True:
                tools, policy = runner.tools, runner.policy
                this = msgspec.structs.replace(
                    request, messages=messages, tools=tools, call_policy=policy
                )
                last = self._add(reply(this))
                if stopped() or not last.message.calls or policy.choice == "none":
                    return last
                results = self._carry_out(runner, last.message.calls, stopped)
                if self.stopped:
                    return last
                messages = (*messages, last.message, *results)
        finally:
            runner.close()
            self._notify(*runner.news())

    def _add(self, reply: Reply) -> Reply:
        self.items.append(reply)
        return reply

    def _carry_out(
        self, runner: "CallRunner", calls: Sequence[ToolCall], stopped: Callable[[], bool]
    ) -> list[Message]:
        """Carry calls out, asking for approval if it is needed; return their results."""
        prompt = None
        if sys.stdin.isatty() and sys.stderr.isatty():
            prompt = partial(pressed_answer, stopped=stopped)
        results = []
        runner.start(calls)
        while runner.busy:
            if stopped():
                runner.stop()
            for each in runner.take():
                if isinstance(each, str):
                    self._notify(each)
                else:
                    self.items.append(each)
                    results.append(Message("tool", (each.result,)))
                    self._print_result(each)
            runner.ask(notice, lambda text: click.echo(clean(text), err=True), prompt)
            self._notify(*runner.news())
            time.sleep(_LOOK_S)
        self.stopped = runner.stopped
        return results

    def _print_result(self, done: "CarriedOut") -> None:
        took = f" · {duration_text(done.seconds, 1)}" if done.begun else ""
        self._notify(f"{done.call.name}{took}{' · error' if done.result.is_error else ''}")
        self._notify(*(f"  {line}" for line in shortened_lines(clean(done.result.text))))

    def _notify(self, *texts: str) -> None:
        if not self._quiet:
            notice(*texts)
