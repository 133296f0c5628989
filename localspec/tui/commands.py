"""The commands of the chat, on screens and in lines: one table of their names, arguments and keys, and how a line is read."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from localspec.errors import UsageError
from localspec.options.reply import THINK
from localspec.tui import actions
from localspec.tui.front import Front
from localspec.tui.session import StillAnswering
from localspec.tui.settings import SETTINGS

QUOTES = '"""'


def goes_on(text: str) -> bool:
    """Return whether a text begins with three double quotes that nothing has closed yet."""
    begun = text.lstrip()
    return begun.startswith(QUOTES) and QUOTES not in begun[len(QUOTES) :]


def unquoted(text: str) -> str:
    """Return what stands between three double quotes if they enclose all of a text, else the text."""
    inner = text.strip()
    if len(inner) < 2 * len(QUOTES) or not (inner.startswith(QUOTES) and inner.endswith(QUOTES)):
        return text
    return inner[len(QUOTES) : -len(QUOTES)].strip("\n")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        name: what is typed behind the slash, and what `[keys]` in chat.toml calls it.
        do: does it, with its argument; raises LocalspecError where it cannot be done. Its docstring is the help.
        usage: its arguments, for people.
        key: runs it without an argument.
        aliases: other names, which mean it only when they are typed whole.
        arguments: words that the first argument may be; empty where it is free.
        while_busy: whether it may run while an answer streams in.
        rare: whether the menu of `/` leaves it out; the palette has it, and typing more of its name finds it.
    """

    name: str
    do: Callable[[Front, str], Awaitable[None]]
    usage: str = ""
    key: str = ""
    aliases: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    while_busy: bool = False
    rare: bool = False

    @property
    def summary(self) -> str:
        """What it does, in a few words."""
        text = (inspect.getdoc(self.do) or "").removesuffix(".")
        return text[:1].lower() + text[1:]

    @property
    def about(self) -> str:
        """What it does, and its other names."""
        also = ", ".join(f"/{each}" for each in self.aliases)
        return f"{self.summary} (also {also})" if also else self.summary

    @property
    def needs_more(self) -> bool:
        """Whether its name alone is not enough."""
        return bool(self.usage) and not self.usage.startswith("[")


COMMANDS: Sequence[Command] = (
    Command("new", actions.new, key="ctrl+n", aliases=("clear",)),
    Command("system", actions.system, "[TEXT|PERSONA]"),
    Command("regenerate", actions.regenerate, "[SEED]", "f5", ("retry",)),
    Command("undo", actions.undo),
    Command("edit", actions.edit, "[N] [TEXT]", "f6"),
    Command("branch", actions.branch, "[N]"),
    Command("continue", actions.go_on),
    Command("copy", actions.copy, "[N|code|all]"),
    Command("model", actions.model, "[NAME]", "f8"),
    Command("history", actions.history, "[WORDS|#N]", "f7", ("load",)),
    Command("good", actions.good, rare=True),
    Command("bad", actions.bad, rare=True),
    Command("save", actions.save, "[TITLE]"),
    Command("export", actions.export, "[md|json] [FILE]", arguments=("md", "json")),
    Command("set", actions.set_, "[NAME VALUE]", "f4", arguments=(actions.MODEL, *SETTINGS)),
    Command(
        *("think", actions.think, "[on|off|low|…|N]", "ctrl+t"),
        arguments=THINK,
        while_busy=True,
        rare=True,
    ),
    Command("stats", actions.stats, key="f2", while_busy=True),
    Command("reveal", actions.reveal, rare=True),
    Command("lens", actions.lens, key="f3"),
    Command("docs", actions.docs, "[NAME|off|N]", "f9", while_busy=True),
    Command("paste", actions.paste, rare=True),
    Command("listen", actions.listen, "[TEXT]", rare=True),
    Command("compact", actions.compact, "[edit|drop|TEXT]", arguments=("edit", "drop")),
    Command("restart", actions.restart, while_busy=True, rare=True),
    Command("editor", actions.editor, key="ctrl+g", while_busy=True, rare=True),
    Command("theme", actions.theme, "[NAME]", while_busy=True, rare=True),
    Command("help", actions.help_, key="f1", aliases=("?",), while_busy=True),
    Command("quit", actions.leave, aliases=("bye", "exit"), while_busy=True),
)
BY_NAME = {command.name: command for command in COMMANDS}
_FAREWELLS = {"exit", "quit"}
_LIKE = 0.6
_BY_ALIAS = {alias: command for command in COMMANDS for alias in command.aliases}


def parse(line: str, *, typed: bool = False) -> tuple[Command, str] | None:
    """Return the command of a line and its argument; None where the line is no command.

    A line that begins with two slashes, or whose first word has another slash, is a text: paths do.

    Args:
        line: what was sent.
        typed: whether a person wrote it as it is: then `exit` and `quit` leave, as in shells and other chats.

    Raises:
        UsageError: no command has this name, or several begin with it.
    """
    if typed and line.strip().lower() in _FAREWELLS:
        return BY_NAME["quit"], ""
    word, _, rest = line.partition(" ")
    if not word.startswith("/") or "/" in word[1:] or "\n" in word or len(word) == 1:
        return None
    name = word[1:].lower()
    exact = BY_NAME.get(name) or _BY_ALIAS.get(name)
    matches = [exact] if exact else [each for each in COMMANDS if each.name.startswith(name)]
    if len(matches) == 1:
        return matches[0], rest.strip()
    if matches:
        names = ", ".join(f"/{each.name}" for each in matches)
        raise UsageError(f"{word} may mean {names}: type more of it")
    near = get_close_matches(name, [*BY_NAME, *_BY_ALIAS], 3, _LIKE)
    hint = f"did you mean {' or '.join(f'/{each}' for each in near)}? " if near else ""
    raise UsageError(
        f"there is no command {word[:40]}: {hint}/help lists them; put a space in front to send it as text"
    )


async def run(front: Front, command: Command, argument: str) -> None:
    """Run a command.

    Raises:
        LocalspecError: it cannot be done; one line.
    """
    if front.session.busy and not command.while_busy:
        running = front.session.what_runs
        raise StillAnswering(f"{running}: wait before /{command.name}, or press Esc to stop")
    await command.do(front, argument)


def matching(line: str) -> list[Command]:
    """Return the commands that a line which is being typed may become."""
    if not line.startswith("/") or " " in line or "\n" in line:
        return []
    name = line[1:].lower()
    if not name:
        return [command for command in COMMANDS if not command.rare]
    first = [command for command in COMMANDS if command.name.startswith(name)]
    return first or [
        command
        for command in COMMANDS
        if name in command.name or any(alias.startswith(name) for alias in command.aliases)
    ]
