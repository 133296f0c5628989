"""Citing: passages as numbered documents of a message, and what an answer cites, looked up among them.

The numbers stand in the conversation itself and go on from question to question, so that the history, an export
and another window know what each number means. Reads no file and no index.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from localspec.messages import DocumentPart, Message
from localspec.options import PASSAGE_TOKENS

_BYTES_PER_TOKEN = 3
"""Fewer than English has on average, so that a budget in tokens holds, and those of a Chinese letter; see docs/measurements/retrieval.md."""
_MOST_PASSAGES, _MOST_AGAIN = 10, 5
_NUMBERED = re.compile(r"\[(\d{1,6})\] (\S.*)")
_CITED = re.compile(r"\[(\d{1,6}(?:, ?\d{1,6})*)\](?!\()")
_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)|`[^`\n]*`", re.DOTALL)
_INSTRUCTIONS = (
    "Answer the question above from {these}. After each sentence, cite the passage that it comes from by its number, "
    "such as [{first}]. If they do not answer the question, say so."
)
_INSTRUCTION = "how to answer"
_NOTHING = "No passage of these documents fits the question above. Say so."


class PassageText(NamedTuple):
    """A passage as it is offered to a conversation.

    Args:
        where: path and line, for people.
        text: what it says.
    """

    where: str
    text: str


class NumberedPassage(NamedTuple):
    """A passage of a conversation.

    Args:
        number: from 1 on, in the order of the conversation.
        where: path and line, for people.
        text: what the model read.
    """

    number: int
    where: str
    text: str

    def __str__(self) -> str:
        return f"[{self.number}] {self.where}"

    @property
    def tokens(self) -> int:
        """About how many tokens it takes; see `tokens_in`."""
        return tokens_in(self.where + self.text)


class Citations(NamedTuple):
    """What an answer cites.

    Args:
        passages: that it names, each once, in the order of their first mention.
        unknown: numbers that no passage has.
    """

    passages: tuple[NumberedPassage, ...]
    unknown: tuple[int, ...]

    def lines(self) -> Iterator[str]:
        """Yield what people read: numbers with path and line, and numbers that no passage has."""
        yield from map(str, self.passages)
        for number in self.unknown:
            yield f"[{number}] names no passage"


def tokens_in(text: str) -> int:
    """Return about how many tokens a text has, rather too many than too few."""
    return -(-len(text.encode(errors="replace")) // _BYTES_PER_TOKEN)


def as_documents(
    passages: Iterable[PassageText],
    known: Mapping[int, NumberedPassage],
    budget: int = PASSAGE_TOKENS,
) -> tuple[DocumentPart, ...]:
    """Return what goes with a question: passages with the next numbers, and last how to answer from them.

    A passage that the conversation has already is not repeated, but named by its number.

    Args:
        passages: the best first.
        known: those of the conversation so far, see `passages_in`.
        budget: tokens that they may take together; see `tokens_in`.
    """
    numbers = {(each.where, each.text): each.number for each in known.values()}
    new, again = list[PassageText](), list[int]()
    for each in passages:
        number = numbers.get((each.where, each.text))
        new.append(each) if number is None else again.append(number)
    again = again[:_MOST_AGAIN]
    following = max(known, default=0) + 1
    documents = [
        DocumentPart(f"[{number}] {each.where}", each.text)
        for number, each in enumerate(within(new, budget), following)
    ]
    return (*documents, DocumentPart(_INSTRUCTION, _how(following, len(documents), again)))


def nothing_fits(documents: Sequence[DocumentPart]) -> bool:
    """Return whether documents of a question are the word that no passage fits it."""
    return any(each.name == _INSTRUCTION and each.text == _NOTHING for each in documents)


def within(passages: Iterable[PassageText], budget: int) -> list[PassageText]:
    """Return the first passages that fit into so many tokens together; one that does not is left out for others that do."""
    fitting = list[PassageText]()
    for each in passages:
        size = tokens_in(each.where + each.text)
        if size <= budget and len(fitting) < _MOST_PASSAGES:
            budget -= size
            fitting.append(each)
    return fitting


def _how(first: int, count: int, again: Sequence[int]) -> str:
    """Return what a model reads about the passages."""
    if not (count or again):
        return _NOTHING
    parts = ["the numbered passages"] if count else []
    if again:
        parts.append(f"what was shown before as {', '.join(f'[{each}]' for each in again)}")
    return _INSTRUCTIONS.format(these=" and ".join(parts), first=first if count else again[0])


def passages_in(messages: Iterable[Message]) -> dict[int, NumberedPassage]:
    """Return the passages of a conversation by their numbers."""
    return {
        each.number: each
        for message in messages
        for document in message.documents
        if (each := _numbered(document))
    }


def files_of(message: Message) -> tuple[DocumentPart, ...]:
    """Return the documents of a message that the user attached: no passages, and not how to answer from them."""
    return tuple(
        each for each in message.documents if each.name != _INSTRUCTION and _numbered(each) is None
    )


def citations(text: str, known: Mapping[int, NumberedPassage]) -> Citations:
    """Return what an answer cites, of what a conversation has; brackets in code are none.

    Args:
        text: of the answer.
        known: see `passages_in`.
    """
    places = _CITED.findall(_CODE.sub(" ", text)) if known else ()
    numbers = dict.fromkeys(int(each) for place in places for each in place.split(","))
    return Citations(
        tuple(known[each] for each in numbers if each in known),
        tuple(each for each in numbers if each not in known),
    )


def _numbered(document: DocumentPart) -> NumberedPassage | None:
    name = _NUMBERED.fullmatch(document.name)
    return NumberedPassage(int(name[1]), name[2], document.text) if name else None
