"""The slash commands of the chat, on screens and on lines alike: names, arguments, what they do, how they are read."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from localspec.errors import UsageError
from localspec.tui import actions
from localspec.tui.front import Front
from localspec.tui.session import SETTINGS, StillAnswering

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
    """One slash command.

    Args:
        name: what is typed behind the slash.
        usage: its arguments, for people.
        summary: what it does, in a few words.
        do: does it, given its argument; raises LocalspecError where it cannot be done.
        aliases: other names, which mean it only when they are typed whole.
        arguments: words that the first argument may be; empty where it is free.
        while_busy: whether it may run while an answer streams in.
        rare: whether the menu of `/` and F1 leave it out; the palette has it, and typing more of its name finds it.
    """

    name: str
    usage: str
    summary: str
    do: Callable[[Front, str], Awaitable[None] | None]
    aliases: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    while_busy: bool = False
    rare: bool = False

    @property
    def about(self) -> str:
        """What it does, and its other names."""
        also = "".join(f", /{each}" for each in self.aliases)
        return f"{self.summary} (also {also[2:]})" if also else self.summary

    @property
    def needs_more(self) -> bool:
        """Whether its name alone is not enough."""
        return bool(self.usage) and not self.usage.startswith("[")


COMMANDS: Sequence[Command] = (
    Command("new", "", "start a new conversation", actions.new, ("clear",)),
    Command("system", "[TEXT]", "show or set the system prompt; `-` removes it", actions.system),
    Command(
        "persona", "[NAME]", "use a named system prompt from chat.toml", actions.persona, rare=True
    ),
    Command(
        "regenerate", "[SEED]", "answer the last question again", actions.regenerate, ("retry",)
    ),
    Command("undo", "", "take back the last question and its answer", actions.undo),
    Command(
        "edit",
        "[N] [TEXT]",
        "edit your last or N-th question, in a new branch",
        actions.edit,
    ),
    Command(
        "branch",
        "[N]",
        "branch off into a new conversation after question N and its answer",
        actions.branch,
    ),
    Command("continue", "", "resume the last answer where it stopped", actions.go_on),
    Command(
        "copy",
        "[N|code|all]",
        "copy the last answer, its N-th block of code, or everything, to the clipboard",
        actions.copy,
    ),
    Command("model", "[NAME]", "show or switch the model", actions.model),
    Command(
        "history",
        "[WORDS|#N]",
        "list, search or open earlier conversations",
        actions.history,
        ("load",),
    ),
    Command("save", "[TITLE]", "name this conversation; all conversations are kept", actions.save),
    Command(
        "export",
        "[md|json] [FILE]",
        "write this conversation to a file",
        actions.export,
        arguments=("md", "json"),
    ),
    Command(
        "set",
        "[NAME VALUE]",
        "show or change settings: sampling, drafting, ctx; model: your default",
        actions.set_,
        arguments=(actions.MODEL, *SETTINGS),
    ),
    Command(
        "think",
        "",
        "show or hide thoughts and long questions",
        lambda front, _: front.toggle_thoughts(),
        while_busy=True,
        rare=True,
    ),
    Command(
        "stats",
        "",
        "show where the time goes and what drafting gains",
        lambda front, _: front.show_stats(),
        while_busy=True,
    ),
    Command(
        "reveal", "", "show what a rule of --gate masked until you ask", actions.reveal, rare=True
    ),
    Command("lens", "", "show where every token of the last answer comes from", actions.lens),
    Command(
        "race",
        "[TEXT]",
        "answer with and without drafting, side by side",
        lambda front, text: front.show_race(text),
    ),
    Command(
        "docs",
        "[NAME|off|N]",
        "answer from an index of your files; show passage N",
        actions.docs,
    ),
    Command(
        "compact",
        "[edit|drop|TEXT]",
        "have the model summarise earlier turns, which then leave the context; edit or TEXT changes the summary, drop leaves the oldest turns out instead",
        actions.compact,
        arguments=("edit", "drop"),
    ),
    Command(
        "tag",
        "[NAME…|-NAME…]",
        "show, add or remove tags of this conversation",
        actions.tag,
        rare=True,
    ),
    Command(
        "stop",
        "",
        "stop the answer and keep what has arrived",
        actions.stop,
        while_busy=True,
        rare=True,
    ),
    Command("restart", "", "restart the model", actions.restart, while_busy=True, rare=True),
    Command(
        "editor",
        "",
        "write the question in $EDITOR",
        lambda front, _: front.open_editor(),
        while_busy=True,
        rare=True,
    ),
    Command(
        "theme",
        "[NAME]",
        "show or change the colours",
        lambda front, name: front.choose_theme(name),
        while_busy=True,
        rare=True,
    ),
    Command(
        "help",
        "",
        "list commands and keys",
        lambda front, _: front.show_help(),
        ("?",),
        while_busy=True,
    ),
    Command("quit", "", "quit", lambda front, _: front.leave(), ("bye", "exit"), while_busy=True),
)
BY_NAME = {command.name: command for command in COMMANDS}
# Commands of earlier versions, and what they are now.
MOVED = {
    "rename": "save",
    "sources": "docs",
    "default": "set model",
    "drop": "compact drop",
}
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
    if name in MOVED:
        raise UsageError(f"/{name} is /{MOVED[name]} now")
    found = [command for command in COMMANDS if command.name.startswith(name)]
    if name in BY_NAME:
        found = [BY_NAME[name]]
    elif name in _BY_ALIAS:
        found = [_BY_ALIAS[name]]
    if len(found) == 1:
        return found[0], rest.strip()
    if found:
        raise UsageError(
            f"{word} may mean {', '.join(f'/{each.name}' for each in found)}: type more of it"
        )
    near = get_close_matches(name, [*BY_NAME, *_BY_ALIAS], 3, _LIKE)
    meant = f"did you mean {' or '.join(f'/{each}' for each in near)}? " if near else ""
    raise UsageError(
        f"there is no command {word[:40]}: {meant}/help lists them; put a space in front to send it as text"
    )


async def run(front: Front, command: Command, argument: str) -> None:
    """Run a command.

    Raises:
        LocalspecError: it cannot be done; one line.
    """
    if front.session.busy and not command.while_busy:
        raise StillAnswering(f"still answering: wait before /{command.name}, or press Esc to stop")
    under_way = command.do(front, argument)
    if under_way is not None:
        await under_way


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
