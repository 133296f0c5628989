"""`--tools`: the functions that a verb lets a model call, in the folder where it was started."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click
import msgspec

from localspec.calls.policy import ASKED_FIRST, CallPolicy
from localspec.chat.events import Event, Reply
from localspec.chat.request import Request
from localspec.cli.docs import checked_docs
from localspec.cli.option_flags import tool_rules_option
from localspec.decoding.round import StopReason
from localspec.display import clean, duration_text, notice, printable
from localspec.errors import UsageError
from localspec.messages import Message, ToolCall
from localspec.storage.paths import config_dir, data_dir, shown

if TYPE_CHECKING:
    from localspec.toolbox.loop import CarriedOut
    from localspec.toolbox.permissions import Decision, Permissions
    from localspec.toolbox.toolbox import Proposal, Toolbox
    from localspec.ui.tool_work import ToolWork

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


def work_of(folder: Path, flags: Mapping[str, Any]) -> "ToolWork":
    """Return what carries out calls in a folder for the chat; see `toolboxes`."""
    from localspec.ui.tool_work import ToolWork  # noqa: PLC0415

    news = SimpleQueue[str]()
    return ToolWork(*toolboxes(folder, flags, news.put), news, _policy(flags))


def _policy(flags: Mapping[str, Any]) -> CallPolicy:
    """Return what may be called where somebody is asked first."""
    return ASKED_FIRST.under(flags["tool_rules"])


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


def pressed_answer(text: str, stop: threading.Event | None = None) -> str:
    """Ask a person at the terminal for a key; behind an `n` a line says why.

    Args:
        text: the question. Nobody has read it in its first moments, so a key that is pressed then is no answer.
        stop: once set, nobody waits any longer.

    Raises:
        EOFError: there will be none.
    """
    import termios  # noqa: PLC0415 - only with a terminal
    import tty  # noqa: PLC0415

    stop, descriptor = stop or threading.Event(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        click.echo(text, err=True, nl=False)
        stop.wait(_UNREAD_S)
        termios.tcflush(descriptor, termios.TCIFLUSH)
        _wait_for_input(stop)
        pressed = os.read(descriptor, _MOST_PRESSED).decode(errors="replace")
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
    if pressed in {"", "\x04", "\x1b"}:  # the end, Ctrl-D, Esc
        click.echo(err=True)
        raise EOFError
    click.echo(printable(pressed.strip()), err=True, nl=pressed not in {"n", "N"})
    if pressed in {"n", "N"}:
        _wait_for_input(stop)
        pressed += f" {sys.stdin.readline()}"
    return pressed


def _wait_for_input(stop: threading.Event) -> None:
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if stop.is_set():
            raise EOFError


def said_by(reply: Reply) -> Message:
    """Return what a reply says; the calls of one that was stopped are not made."""
    said = Message.assistant(reply.text, reply.thinking)
    calls = () if reply.stop_reason is StopReason.CANCELLED else reply.calls
    return replace(said, parts=(*said.parts, *calls))


class RepliesAndCalls:
    """The replies to one question of `run`, and the calls between them; see `Hands`.

    Args:
        flags: of the verb; with `quiet`, only what is refused because there is nobody to ask is written.

    Raises:
        UsageError: see `toolboxes`.

    Attributes:
        said: replies, and what came of their calls, in order.
        stopped: whether the user stopped a call.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._quiet, self._flags = flags["quiet"], flags
        self._permissions: Permissions | None = None
        if wants_tools(flags):
            found = toolboxes(Path.cwd(), flags, self._tell)
            self._boxes, self._permissions, self._notes = found
        self.said: list[Reply | CarriedOut] = []
        self.stopped = False
        self._asked = ""

    def answered(
        self, asked: Request, reply: Callable[[Request], Reply], stopped: Callable[[], bool]
    ) -> Reply:
        """Return the last reply to a question, which all that is called has led to.

        Args:
            asked: the question.
            reply: answers it, and writes the answer.
            stopped: says whether the user wants an end.
        """
        if self._permissions is None:
            self.said.append(reply(asked))
            return self.last
        from localspec.toolbox.loop import ToolLoop  # noqa: PLC0415
        from localspec.toolbox.toolbox import wait_for  # noqa: PLC0415

        for note in self._notes:
            self._tell(note)
        loop = ToolLoop(self._boxes, self._permissions, self, _policy(self._flags))

        messages = asked.messages

        def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
            nonlocal messages
            messages = (*messages, *results)
            this = msgspec.structs.replace(
                asked, messages=messages, tools=loop.tools, call_policy=loop.policy
            )
            self.said.append(reply(this))
            said = said_by(self.last)
            messages = (*messages, said)
            return said.calls

        try:
            with _following(stopped) as stop:
                wait_for(self._boxes, stop)
                loop.converse(ask, stop)
                self.stopped = stop.is_set()
        finally:
            loop.close()
        return self.last

    @property
    def last(self) -> Reply:
        """The last reply."""
        return next(each for each in reversed(self.said) if isinstance(each, Reply))

    def decide(self, call: ToolCall, proposal: "Proposal", stop: threading.Event) -> "Decision":
        """Ask at the terminal; where there is none, refuse."""
        from localspec.toolbox.asked import decision  # noqa: PLC0415
        from localspec.toolbox.permissions import Decision  # noqa: PLC0415
        from localspec.ui.reply_lines import NOBODY  # noqa: PLC0415

        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            notice(f"refused: {proposal.summary}; {NOBODY}")
            return Decision(allowed=False, reason=NOBODY)
        notice(proposal.summary)
        self._asked = call.id
        if proposal.preview:
            click.echo(clean(proposal.preview), err=True)
        assert self._permissions is not None  # noqa: S101 - set before anything is called
        scope = self._permissions.scope(call, proposal)
        found = decision(lambda text: pressed_answer(text, stop), scope)
        if found is None:
            stop.set()
            return Decision(allowed=False, reason="they stopped the answer")
        return found

    def began(self, call: ToolCall, proposal: "Proposal") -> None:
        """Say what is carried out, unless the question was about it."""
        if call.id != self._asked:
            self._tell(proposal.summary)

    def ended(self, done: "CarriedOut") -> None:
        """Say what came of it."""
        from localspec.ui.reply_lines import folded  # noqa: PLC0415

        self.said.append(done)
        took = f" · {duration_text(done.seconds, 1)}" if done.begun else ""
        self._tell(f"{done.call.name}{took}{' · error' if done.result.is_error else ''}")
        for line in folded(clean(done.result.text)):
            self._tell(f"  {line}")

    def _tell(self, text: str) -> None:
        if not self._quiet:
            notice(text)


@contextmanager
def _following(stopped: Callable[[], bool]) -> Iterator[threading.Event]:
    """Yield what is set once something else says so."""
    stop, done = threading.Event(), threading.Event()

    def follow() -> None:
        while not done.wait(_LOOK_S):
            if stopped():
                stop.set()

    follower = threading.Thread(target=follow, daemon=True, name="localspec-stop")
    follower.start()
    try:
        yield stop
    finally:
        done.set()
        follower.join()
