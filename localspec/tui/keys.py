"""The keys of the chat. Each has a name, under which `[keys]` in chat.toml gives it others."""

from collections.abc import Mapping

from textual.binding import Binding, BindingType


def _command(keys: str, name: str, text: str) -> Binding:
    return Binding(keys, f"command('{name}')", text, id=name, priority=True)


def _message(keys: str, name: str, text: str) -> Binding:
    return Binding(keys, f"app.message('{name}')", text, id=f"message_{name}", show=False)


IN_APP: list[BindingType] = [
    Binding("escape", "stop", "Stop the answer", id="stop"),
    Binding("ctrl+end", "to_end", "Go to the end", id="to_end", priority=True),
    _command("f1", "help", "Keys and commands"),
    _command("f2", "stats", "Stats"),
    _command("f3", "lens", "Token lens"),
    _command("f4", "set", "Settings"),
    _command("f5", "regenerate", "Answer again"),
    _command("f6", "edit", "Edit the last question"),
    _command("f7", "history", "History"),
    _command("f8", "model", "Models"),
    Binding("f9", "command('docs')", "Documents and passages", id="sources", priority=True),
    _command("ctrl+n", "new", "New conversation"),
    _command("ctrl+t", "think", "Fold or unfold"),
    Binding("ctrl+c", "copy_or_stop", "Copy, stop, or clear", id="copy_or_stop", priority=True),
    Binding("ctrl+q", "quit", "Quit (or Ctrl+C twice)", id="quit", priority=True),
    Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", priority=True),
    _command("ctrl+g", "editor", "Write in $EDITOR"),
]

IN_COMPOSER: list[BindingType] = [
    Binding("enter", "send", "Send", id="send"),
    Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", id="newline"),
    Binding("ctrl+d", "leave_or_delete", "Quit, if the input line is empty", id="leave"),
    Binding("ctrl+underscore", "undo", "Undo typing", id="undo"),
    Binding("pageup", "app.page(-1)", "Scroll up", id="page_back"),
    Binding("pagedown", "app.page(1)", "Scroll down", id="page_on"),
]

ON_MESSAGE: list[BindingType] = [
    Binding("up", "app.focus_previous", "Previous message", id="message_up", show=False),
    Binding("down", "app.focus_next", "Next message", id="message_down", show=False),
    _message("left", "earlier", "Previous version"),
    _message("right", "later", "Next version"),
    _message("e", "edit", "Edit as a new branch"),
    _message("b", "branch", "Branch into a new conversation"),
    _message("c", "copy", "Copy"),
    _message("k", "code", "Copy its last code; again: the one before"),
    _message("t,enter", "think", "Fold or unfold"),
]


_SHORT = {
    "message_edit": "edit",
    "message_branch": "branch",
    "message_copy": "copy",
    "message_code": "code",
    "message_think": "fold",
}
_NAMES = {
    "escape": "Esc",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "underscore": "_",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def key_text(key: str) -> str:
    """Return a key as people write it: Ctrl+N for ctrl+n, F1 for f1; a single letter stays as it is."""
    *held, last = key.strip().split("+")
    named = _NAMES.get(last) or (last.capitalize() if held or len(last) > 1 else last)
    return "+".join([*(each.capitalize() for each in held), named])


def message_hint(chosen: Mapping[str, str], *, question: bool, versions: bool) -> str:
    """Return what the keys of a message do, in a line.

    Args:
        chosen: the user's own keys by name.
        question: whether it is one, which can be edited.
        versions: whether there are several of it.
    """
    keys = {
        each.id: chosen.get(each.id, each.key).partition(",")[0]
        for each in ON_MESSAGE
        if isinstance(each, Binding) and each.id is not None
    }
    earlier, later = (keys[f"message_{name}"] for name in ("earlier", "later"))
    parts = [f"{key_text(earlier)}{key_text(later)} version"]
    parts += [
        f"{key_text(keys[name])} {text}"
        for name, text in _SHORT.items()
        if question or name != "message_edit"
    ]
    return " · ".join([*parts[0 if versions else 1 :], "Esc back"])


def key_list(chosen: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return keys, what they do, and the name under which they can be changed, with a slash where that is a command, too.

    Args:
        chosen: the user's own keys by name.
    """
    rows = []
    for each in (*IN_APP, *IN_COMPOSER, *ON_MESSAGE):
        if isinstance(each, Binding) and each.id is not None:
            keys = ", ".join(map(key_text, chosen.get(each.id, each.key).split(",")))
            is_command = each.action == f"command('{each.id}')" or each.action in {"stop", "quit"}
            rows.append((keys, each.description, f"/{each.id}" if is_command else each.id))
    return rows
