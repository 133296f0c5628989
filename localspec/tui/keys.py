"""The keys of the chat: those of the commands, and others. Each has a name, under which `[keys]` in chat.toml gives it others.

To Textual's parser of keys, an escape in pasted text, as coloured logs have it, is a key; here it is left out.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches

from textual._xterm_parser import XTermParser
from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys
from textual.message import Message

from localspec.tui.commands import COMMANDS


def _key(keys: str, action: str, name: str, text: str, *, first: bool = False) -> Binding:
    """Return a binding; one that comes `first` is not for what has the focus."""
    return Binding(keys, action, text, id=name, priority=first, show=False)


def _message(keys: str, name: str, text: str, group: Binding.Group | None = None) -> Binding:
    return Binding(keys, f"app.message('{name}')", text, id=f"message_{name}", group=group)


_VERSION = Binding.Group("version", compact=True)
_MARK = Binding.Group("mark", compact=True)


IN_APP: list[BindingType] = [
    _key("escape", "stop", "stop", "stop the answer"),
    _key("ctrl+end", "to_end", "to_end", "go to the end", first=True),
    *(
        _key(e.key, f"command('{e.name}')", e.name, e.summary, first=True)
        for e in COMMANDS
        if e.key
    ),
    _key(
        "ctrl+c",
        "copy_or_stop",
        "copy_or_stop",
        "copy; else stop the answer; else clear the input line; else quit, if pressed twice",
        first=True,
    ),
    _key("ctrl+q", "quit", "quit", "quit", first=True),
    _key("ctrl+z", "suspend_process", "suspend", "suspend", first=True),
]

IN_COMPOSER: list[BindingType] = [
    _key("enter", "send", "send", "send"),
    _key("ctrl+j,shift+enter,alt+enter", "newline", "newline", "new line"),
    _key("ctrl+d", "leave_or_delete", "leave", "quit, if the input line is empty"),
    _key("ctrl+v", "paste", "paste", "attach the clipboard's picture, or paste"),
    _key("ctrl+underscore", "undo", "undo", "undo typing"),
    _key(
        "ctrl+r",
        "search",
        "search",
        "find an earlier question with what is typed; again: one before",
    ),
    _key("pageup", "app.page(-1)", "page_back", "scroll up"),
    _key("pagedown", "app.page(1)", "page_on", "scroll down"),
]

ON_MESSAGE: list[BindingType] = [
    _key("up", "app.focus_previous", "message_up", "previous message"),
    _key("down", "app.focus_next", "message_down", "next message"),
    _message("left", "earlier", "version before", _VERSION),
    _message("right", "later", "version after", _VERSION),
    _message("e", "edit", "edit"),
    _message("b", "branch", "branch"),
    _message("c", "copy", "copy"),
    _message("k", "code", "code"),
    _message("t,enter", "think", "fold"),
    _message("plus", "good", "good", _MARK),
    _message("minus", "bad", "bad", _MARK),
    Binding("escape", "app.stop", "back", id="message_back"),
]
_MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}
_NAMED_KEYS = {
    *(each.value.rpartition("+")[2] for each in Keys),
    *KEY_NAME_REPLACEMENTS.values(),
    "underscore",
}
_ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
_SIGNS = {"underscore": "_", "plus": "+", "minus": "-"}
_NAMES = {"escape": "Esc", "pageup": "PageUp", "pagedown": "PageDown", **_SIGNS, **_ARROWS}


def key_text(key: str) -> str:
    """Return a key as people write it: Ctrl+N for ctrl+n, F1 for f1; a single letter stays as it is."""
    *with_, last = key.strip().split("+")
    named = _NAMES.get(last) or (last.capitalize() if with_ or len(last) > 1 else last)
    return "+".join([*(each.capitalize() for each in with_), named])


def read_keys(chosen: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the user's own keys by the name of what they do, as Textual writes them, and a line about each that is wrong and changes nothing."""
    usual = {each.id: each.key for each in _named()}
    right, wrong = dict[str, str](), list[str]()
    for name, keys in chosen.items():
        read = [_read_key(each) for each in keys.split(",")]
        if name not in usual:
            near = get_close_matches(name, [*filter(None, usual)], 1)
            hint = f"did you mean {near[0]}?" if near else "F1 lists the names"
            wrong.append(f"chat.toml, [keys]: nothing is called {name[:40]!r}: {hint}")
        elif "" in read:
            stays = key_text(usual[name].partition(",")[0])
            wrong.append(
                f"chat.toml, [keys]: {name} is {keys[:40]!r}, which is no key: {stays} stays"
            )
        elif other := next((e for e in right if _clash(name, read, e, right[e])), ""):
            taken = f"{keys[:40]!r}, which {other} has: give it another"
            wrong.append(f"chat.toml, [keys]: {name} is {taken}")
        else:
            right[name] = ",".join(read)
    return right, wrong


def _clash(action: str, keys: Collection[str], other: str, others_keys: str) -> bool:
    """Return whether two actions have a key in common where one of them would not get it."""
    meet = _PLACES[action] == _PLACES[other] or not _FIRST.isdisjoint({action, other})
    return action != other and meet and not {*others_keys.split(",")}.isdisjoint(keys)


def _read_key(text: str) -> str:
    """Return a key as Textual writes it; empty where there is no such key."""
    *with_, last = text.strip().split("+")
    with_ = [each.lower() for each in with_]
    last = last.lower() if with_ or len(last) > 1 else last
    is_named = last in _NAMED_KEYS or (len(last) == 1 and last.isprintable())
    return "+".join([*with_, last]) if is_named and _MODIFIERS.issuperset(with_) else ""


def _named() -> Iterator[Binding]:
    for each in (*IN_APP, *IN_COMPOSER, *ON_MESSAGE):
        if isinstance(each, Binding) and each.id is not None:
            yield each


def key_list(chosen: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of all that has some, its name for chat.toml, and what it does; `chosen` are the user's own, by name.

    A key that the user gave to something else is no longer there; the last one may be gone.
    """
    for each in _named():
        name = str(each.id)
        keys = chosen[name].split(",") if name in chosen else _left(each, chosen)
        yield ", ".join(map(key_text, keys)), name, each.description


def _left(binding: Binding, chosen: Mapping[str, str]) -> list[str]:
    """Return the usual keys of a binding but for those that the user gave to others."""
    return [
        key
        for key in binding.key.split(",")
        if not any(_clash(str(binding.id), [key], other, keys) for other, keys in chosen.items())
    ]


_PLACES = {
    each.id: place
    for place, bindings in enumerate((IN_APP, IN_COMPOSER, ON_MESSAGE))
    for each in bindings
    if isinstance(each, Binding)
}
_FIRST = {str(each.id) for each in _named() if each.priority}


_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~])?")
_BEGUN = re.compile("\x1b(?:\\[[0-?]{0,30}[ -/]?)?$")
"""An escape whose end may come with the next part, that of a paste among them."""


class WholePastes(XTermParser):
    """Textual's parser, of what `clean` leaves."""

    def feed(self, data: str) -> Iterable[Message]:
        """Yield the events of what a terminal sent; see `XTermParser`."""
        cleaner = self.__dict__.setdefault("_cleaner", PasteCleaner())
        if not data or (data := cleaner.clean(data)):  # nothing would be the end
            yield from super().feed(data)


class PasteCleaner:
    """Leaves escapes out of bracketed pastes, whatever parts they come in."""

    def __init__(self) -> None:
        self._in_paste = False
        self._before = self._held = ""

    def clean(self, data: str) -> str:
        """Return what may be parsed by now; an escape that has only begun is held back."""
        text, self._held, parts = self._held + data, "", list[str]()
        while text:
            mark = _END if self._in_paste else _BEGIN
            before = "" if self._in_paste else self._before
            inside, found, rest = (before + text).partition(mark)
            if self._in_paste:
                if not found and (begun := _BEGUN.search(inside)):
                    inside, self._held = inside[: begun.start()], begun[0]
                parts.append(_ESCAPES.sub("", inside) + found)
            else:
                parts.append((inside + found)[len(before) :])
            self._before = "" if found else (before + text)[1 - len(_BEGIN) :]
            self._in_paste ^= bool(found)
            text = rest
        return "".join(parts)
