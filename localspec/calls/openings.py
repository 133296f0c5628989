"""How a call may begin where its model leaves out the first marker: `<function=NAME>` without `<tool_call>` before it, say.

Such an opening counts only with the name of an offered function behind it, and with what shows its arguments. The parser
of calls and the grammar that binds them take the same ones, so that none is read that nothing has bound.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from localspec.calls import ID_SLOT, INDEX_SLOT, NAME_SLOT, CallFormat

_MARKER = re.compile(r"<[^<>\s]*>")
_OPENING_TAG = re.compile(r"<([^<>/|\s]+)>")
_OUTER_END = re.compile(r"(?<=[>\n])\s*<[^<>\s]*>")
_SLOT = re.compile(f"[{ID_SLOT}{INDEX_SLOT}]")


def without_opener(form: CallFormat) -> CallFormat | None:
    """Return the format of calls that begin with the second marker; None where there is none.

    Where a name follows the first marker at once (GLM), such a call begins a line: its trigger is empty.
    """
    begin = form.begin.lstrip().removeprefix(form.trigger).lstrip()
    if begin.startswith("<") and not _SLOT.search(begin):
        outer = _OUTER_END.search(form.end)
        end = form.end[: outer.start()] if outer else form.end
        return replace(form, begin=begin, trigger=begin, end=end, next=f"{end}\n{begin}")
    if not begin and form.tagged is not None and _MARKER.fullmatch(form.trigger):
        return replace(form, begin="", trigger="")
    return None


def openings(form: CallFormat) -> tuple[CallFormat, ...]:
    """Return the formats of calls in thoughts that never closed: the usual one, if a marker begins it, and the one without."""
    own = (form,) if form.trigger.startswith(("<", "[")) else ()
    bare = without_opener(form)
    return own if bare is None else (*own, bare)


def heads(form: CallFormat, names: Collection[str]) -> tuple[str, ...]:
    """Return what shows that a call of one of some functions begins, as it stands behind the trigger of a format."""
    _, begin = form.begin.lstrip().split(form.trigger, 1) if form.trigger else ("", form.begin)
    texts = (
        f"{begin}{name}{tail.replace(NAME_SLOT, name)}" for name in names for tail in _tails(form)
    )
    return tuple(dict.fromkeys(_SLOT.split(text)[0] for text in texts))


def _tails(form: CallFormat) -> Iterator[str]:
    """Yield what may stand behind a name, up to the first key or value."""
    tagged = form.tagged
    if tagged is None:
        yield from (f"{then}{{" for then in (form.then, *form.also))
        return
    yield tagged.first
    if tagged.none is not None:
        ends = (form.end, *([] if form.next is None else [form.next]))
        yield from (tail for end in ends if (tail := f"{tagged.none}{end}"))


def closings(form: CallFormat) -> tuple[str, ...]:
    """Return the markers that end calls, each of which may be left over behind the words of an answer."""
    own = _OPENING_TAG.fullmatch(form.trigger)
    last = _MARKER.findall(form.end)
    texts = ([f"</{own[1]}>"] if own else []) + [each for each in last if each != form.trigger]
    return tuple(dict.fromkeys(texts))
