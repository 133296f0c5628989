"""`--tools`: the functions that a verb lets a model call, in the folder where it was started."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click
import msgspec

from localspec.calls.policy import ASKED_FIRST
from localspec.chat.events import Event, Reply
from localspec.chat.request import Request
from localspec.cli.options import tool_rules_option
from localspec.cli.question import checked_docs
from localspec.display import clean, duration_text, notice, printable, shortened_lines
from localspec.errors import UsageError
from localspec.messages import Message, ToolCall
from localspec.storage.paths import config_dir, data_dir, shown

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner
    from localspec.toolbox.loop import CarriedOut
    from localspec.toolbox.permissions import Permissions
    from localspec.toolbox.toolbox import Toolbox

Stream = Callable[[Request, Callable[[], bool]], Iterator[Event]]
"""Answers a question, as events; what it is given beside says whether nobody wants more of them."""
_LOOK_S = 0.05
_MOST_PRESSED = 64
_UNREAD_S = 0.3
_MCP_HELP = "Start an MCP server whose tools it may call. Can be repeated; implies --tools."
_HELP = "Let the model work in this folder; it asks first. It can read, search and change files and run commands."


def tools_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds `--tools`, `--mcp` and `--tool-rules` to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = tool_rules_option(command)
        command = click.option("--mcp", multiple=True, metavar="COMMAND", help=_MCP_HELP)(command)
        return click.option("--tools", is_flag=True, help=_HELP)(command)

    return add


def wants_tools(flags: Mapping[str, Any]) -> bool:
    """Return whether a model may call anything."""
    return bool(flags.get("tools") or flags.get("mcp"))


def toolboxes(
    folder: Path, flags: Mapping[str, Any], notify: Callable[[str], None]
) -> "tuple[Sequence[Toolbox], Permissions, tuple[str, ...]]":
    """Return the functions of a folder and of MCP servers, what the user's rules permit, and what is to be known of them.

    Args:
        folder: where files are read and written.
        flags: of a verb; `mcp` starts servers beside those of `mcp.toml`.
        notify: is told later what is to be known of servers, from a thread of theirs.

    Raises:
        UsageError: the folder holds localspec's own settings or conversations, or the rules or servers cannot be read.
    """
    # Imported here: most conversations call nothing.
    from localspec.toolbox.built_in import BuiltIn  # noqa: PLC0415
    from localspec.toolbox.command import confinement  # noqa: PLC0415
    from localspec.toolbox.folder import Folder  # noqa: PLC0415
    from localspec.toolbox.mcp.box import McpToolbox  # noqa: PLC0415
    from localspec.toolbox.mcp.servers import named_servers  # noqa: PLC0415
    from localspec.toolbox.permissions import Permissions  # noqa: PLC0415
    from localspec.toolbox.rules import Rules  # noqa: PLC0415

    folder = folder.resolve()
    for own in (config_dir(), data_dir()):
        if own.resolve().is_relative_to(folder):
            raise UsageError(
                f"--tools would open {shown(folder)} with localspec's own {shown(own)} in it: "
                "start it in the folder of a project"
            )
    rules = Rules.read()
    told, confined = confinement()
    notes = () if confined else (f"commands are {told}",)
    boxes: list[Toolbox] = [BuiltIn(Folder(folder), rules)]
    if flags["docs"]:
        boxes.append(checked_docs(flags).toolbox())
    servers = named_servers(flags["mcp"])
    if servers:
        boxes.append(McpToolbox(servers, notify, offline=flags["offline"]))
    return boxes, Permissions(rules), notes


def call_runner(folder: Path, flags: Mapping[str, Any]) -> "CallRunner":
    """Return what carries out calls in a folder; see `toolboxes`."""
    from localspec.session.approval import CallRunner  # noqa: PLC0415 - most conversations call nothing

    news = SimpleQueue[str]()
    policy = ASKED_FIRST.under(flags["tool_rules"])
    return CallRunner(*toolboxes(folder, flags, news.put), news, policy)


def typed_answer(text: str) -> str:
    """Ask a person at the terminal; what was typed before is no answer.

    Raises:
        EOFError: there will be none.
    """
    import termios  # noqa: PLC0415 - only with a terminal

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    click.echo(text, err=True, nl=False)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def pressed_answer(text: str, stopped: Callable[[], bool] = lambda: False) -> str:
    """Ask a person at the terminal for a key; behind an `n` a line says why.

    Args:
        text: the question. Nobody has read it in its first moments, so a key that is pressed then is no answer.
        stopped: returns True when no answer is awaited any more.

    Raises:
        EOFError: there will be none.
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
        flags: of the verb; with `quiet`, only what is refused because nobody can be asked is printed.

    Raises:
        UsageError: see `toolboxes`.

    Attributes:
        said: replies, and what came of their calls, in order.
        stopped: whether the user stopped a call.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._quiet = flags["quiet"]
        self._runner = call_runner(Path.cwd(), flags) if wants_tools(flags) else None
        self.said: list[Reply | CarriedOut] = []
        self.stopped = False

    def answered(
        self, asked: Request, reply: Callable[[Request], Reply], stopped: Callable[[], bool]
    ) -> Reply:
        """Return the last reply to a question, after all calls that it led to.

        Args:
            asked: the question.
            reply: answers it, and writes the answer.
            stopped: returns True when the user wants an end.
        """
        runner = self._runner
        if runner is None:
            self.said.append(reply(asked))
            return self.last
        for note in runner.notes:
            self._tell(note)
        messages = asked.messages
        try:
            runner.wait(stopped)
            runner.begin()
            while True:
                tools, policy = runner.tools, runner.policy
                this = msgspec.structs.replace(
                    asked, messages=messages, tools=tools, call_policy=policy
                )
                self.said.append(reply(this))
                said = self.last.message
                if stopped() or not said.calls or policy.choice == "none":
                    return self.last
                results = self._carry_out(runner, said.calls, stopped)
                if self.stopped:
                    return self.last
                messages = (*messages, said, *results)
        finally:
            runner.close()
            self._tell_news(runner)

    @property
    def last(self) -> Reply:
        """The last reply."""
        return next(each for each in reversed(self.said) if isinstance(each, Reply))

    def _carry_out(
        self, runner: "CallRunner", calls: Sequence[ToolCall], stopped: Callable[[], bool]
    ) -> list[Message]:
        """Carry calls out, asking where that is needed; return their results."""
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
                    self._tell(each)
                else:
                    self.said.append(each)
                    results.append(Message("tool", (each.result,)))
                    self._tell_result(each)
            runner.ask(notice, lambda text: click.echo(clean(text), err=True), prompt)
            self._tell_news(runner)
            time.sleep(_LOOK_S)
        self.stopped = runner.stopped
        return results

    def _tell_result(self, done: "CarriedOut") -> None:
        took = f" · {duration_text(done.seconds, 1)}" if done.begun else ""
        self._tell(f"{done.call.name}{took}{' · error' if done.result.is_error else ''}")
        for line in shortened_lines(clean(done.result.text)):
            self._tell(f"  {line}")

    def _tell_news(self, runner: "CallRunner") -> None:
        for note in runner.news():
            self._tell(note)

    def _tell(self, text: str) -> None:
        if not self._quiet:
            notice(text)
