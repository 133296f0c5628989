"""The token lens: an answer with the origin of every token, and how an origin is drawn. No Textual."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from localspec.chat.events import RoundDone
from localspec.decoding.drafters.register import DRAFTERS, DrafterEntry, drafters
from localspec.display import clean


@dataclass(frozen=True, slots=True)
class Mark:
    """How one origin is drawn: what opens and closes a run of its tokens, or a colour of the theme instead."""

    open: str
    close: str
    colour: str
    meaning: str


def _mark(entry: DrafterEntry) -> Mark:
    return Mark(entry.marks[0], entry.marks[1], entry.colour, entry.origin)


MARKS = {
    **{name: _mark(entry) for name, entry in reversed(list(DRAFTERS.items()))},
    "correction": Mark("<", ">", "error", "corrected by the large model"),
    "bonus": Mark("+", "+", "accent", "extra token from the large model"),
    "plain": Mark("", "", "", "written by the large model, nothing drafted"),
}
_PLAIN = MARKS["plain"]


def tokens_of(happened: Iterable[RoundDone]) -> Iterator[tuple[str, Mark]]:
    """Yield the tokens of an answer with their marks; what no draft had a part in is `plain`."""
    for each in happened:
        for text, origin in zip(each.texts, each.round.origins, strict=False):
            if origin not in MARKS and origin in drafters():  # a drafter of another package
                MARKS[origin] = _mark(drafters()[origin])
            yield clean(text), MARKS.get(origin, _PLAIN)


def pieces(happened: Iterable[RoundDone]) -> list[tuple[str, Mark]]:
    """Return an answer in pieces with their marks, of one line each; line ends and indentation are `plain`."""
    made: list[tuple[str, Mark]] = []
    begins = True
    for text, mark in tokens_of(happened):
        for line in text.splitlines(keepends=True):
            word = line.removesuffix("\n")
            blanks = word[: len(word) - len(word.lstrip(" "))] if begins else ""
            word = word[len(blanks) :]
            begins = line.endswith("\n") or (begins and not word)
            for part, its in ((blanks, _PLAIN), (word, mark), ("\n" * line.endswith("\n"), _PLAIN)):
                if part and made and its is made[-1][1]:
                    made[-1] = (made[-1][0] + part, its)
                elif part:
                    made.append((part, its))
    return made


def counts(happened: Iterable[RoundDone]) -> dict[Mark, int]:
    """Return the origins that an answer has, and how many of its tokens come from there."""
    numbers = dict.fromkeys(MARKS.values(), 0)
    for _, mark in tokens_of(happened):
        numbers[mark] = numbers.get(mark, 0) + 1
    return {mark: count for mark, count in numbers.items() if count}


def marked(happened: Iterable[RoundDone]) -> str:
    """Return an answer with marks around its pieces, as plain text."""
    return "".join(f"{mark.open}{text}{mark.close}" for text, mark in pieces(happened))


def legend(happened: Iterable[RoundDone]) -> list[str]:
    """Return a line for every origin of an answer: its marks, how many tokens it has, what it means."""
    return [
        f"{mark.open or ' '}text{mark.close or ' '}  {count:>4}  {mark.meaning}"
        for mark, count in counts(happened).items()
    ]
