"""OpenAI's file search, over indexes of the user's that the server was started with, and the files that answers cite.

The words of each question are looked up before the model begins, and go with it as numbered passages, as `--docs` has them: a
small model need not know how to call anything. A request names indexes, and never a path; only those of `serve --docs` are read.

Source: the API reference of OpenAI, and what its Python client sends and reads.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from localspec.display import notice, printable, printable_line
from localspec.errors import LocalspecError, UsageError
from localspec.messages import Message
from localspec.retrieval.citing import (
    NumberedPassage,
    PassageText,
    as_documents,
    cited_places,
    passages_in,
)
from localspec.serve.http import NotNow

if TYPE_CHECKING:
    from localspec.retrieval.index import FoundPassage

KIND = "file_search"
CALL = "file_search_call"
RESULTS = "file_search_call.results"
_MOST_RESULTS, _LOOKED_AT = 50, 20
_MOST_SEARCHES = 100
"""Of a request: their passages fill a context of 128k tokens."""


@dataclass(frozen=True, slots=True)
class FileSearch:
    """What a request wants looked up.

    Args:
        indexes: names of them.
        most: passages to find.
        tool: as the request has it.
    """

    indexes: tuple[str, ...]
    most: int
    tool: Mapping[str, Any]

    def found(self, question: str) -> "list[FoundPassage]":
        """Return the passages that fit a question best, of all indexes together.

        Raises:
            NotNow: an index cannot be read, or is gone; why is told to whoever runs the server, and nobody else.
        """
        from localspec.retrieval.finding import found, fused  # noqa: PLC0415 - sqlite3, which few servers need
        from localspec.retrieval.index import opened  # noqa: PLC0415

        rankings = list[list["FoundPassage"]]()
        for name in self.indexes:
            try:
                with closing(opened(name)) as index:
                    rankings.append(found(index, question, self.most))
            except (LocalspecError, OSError) as error:
                notice(f"file_search in {name}: {error}")
                raise NotNow(
                    f"the index {name!r} cannot be read now: ask whoever runs this server"
                ) from error
        return rankings[0] if len(rankings) == 1 else fused(rankings)[: self.most]


@dataclass(slots=True)
class Ground:
    """What a conversation is answered from.

    Args:
        messages: with their passages.
        files: name and id of the file that a passage is of, by where it is.
        item: the search for the last question, without its results; None where there was none.
        results: of that search, as far as the model reads them.
    """

    messages: tuple[Message, ...]
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    item: dict[str, Any] | None = None
    results: list[dict[str, Any]] = field(default_factory=list)

    def annotations(self, text: str) -> list[dict[str, Any]]:
        """Return what an answer cites; a number that no passage has is none."""
        known = passages_in(self.messages)
        return [
            {
                "type": "file_citation",
                "index": at,
                "file_id": self.files[known[number].where][1],
                "filename": self.files[known[number].where][0],
            }
            for at, number in (cited_places(text) if self.files else ())
            if number in known and known[number].where in self.files
        ]

    def begun(self, *, results: bool, seen: Callable[[str], str]) -> list[dict[str, Any]]:
        """Return the item that an answer's output begins with, in a list; an empty one without a search.

        Args:
            results: whether it holds what was found.
            seen: returns a text as whoever asks may see it.
        """
        if self.item is None:
            return []
        shown = [{**each, "text": seen(each["text"])} for each in self.results]
        return [{**self.item, "results": shown if results else None}]


def searching(tools: Any, choice: Any, served: Sequence[str]) -> tuple[FileSearch | None, Any, Any]:
    """Return what is to be looked up, and the tools and the choice that are left.

    Args:
        tools: of a request.
        choice: likewise; `none` looks nothing up.
        served: names of the indexes that may be searched; without any, the tool is one of those that are left out.

    Raises:
        UsageError: it names another index, or asks for what is not supported.
    """
    if not served or not isinstance(tools, list):
        return None, tools, choice
    mine = [each for each in tools if isinstance(each, dict) and each.get("type") == KIND]
    rest = [each for each in tools if each not in mine]
    if not mine:
        return None, tools, choice
    if (isinstance(choice, dict) and choice.get("type") == KIND) or (
        choice == "required" and not rest
    ):
        choice = None  # it is looked up in any case
    if len(mine) > 1:
        raise UsageError("file_search is there twice: name all indexes in one")
    return (None if choice == "none" else _read(mine[0], served)), rest, choice


def _read(tool: dict[str, Any], served: Sequence[str]) -> FileSearch:
    names = tool.get("vector_store_ids")
    if not isinstance(names, list) or not names:
        raise UsageError(
            f"file_search names no index: give vector_store_ids of {', '.join(served)}"
        )
    wrong = [each for each in names if each not in served]
    if wrong:
        raise UsageError(
            f"file_search names {printable_line(str(wrong[0]))[:60]!r}, which is not served here: choose among {', '.join(served)}"
        )
    most = tool.get("max_num_results")
    most = _LOOKED_AT if most is None else most
    if type(most) is not int or not 1 <= most <= _MOST_RESULTS:
        raise UsageError(f"max_num_results is {str(most)[:20]}: give 1 to {_MOST_RESULTS}")
    ranking = tool.get("ranking_options") or {}
    if tool.get("filters") or (isinstance(ranking, dict) and ranking.get("score_threshold")):
        raise UsageError(
            "filters and score_threshold of file_search are not supported by this server: remove them"
        )
    return FileSearch(tuple(dict.fromkeys(names)), most, tool)


async def looked_up(
    messages: Sequence[Message],
    search: FileSearch | None,
    before: Mapping[int, str],
    searches: asyncio.Semaphore,
) -> Ground:
    """Return a conversation with the passages of its questions, which wait until they may be looked up; see `grounded`.

    Args:
        messages: the conversation.
        search: what is to be looked up; nothing is without it.
        before: what was looked up for earlier questions, by the place of the message.
        searches: is held meanwhile.
    """
    if search is None:
        return Ground(tuple(messages))
    async with searches:
        return await asyncio.to_thread(grounded, messages, search, before)


def grounded(messages: Sequence[Message], search: FileSearch, before: Mapping[int, str]) -> Ground:
    """Return a conversation with the passages of its questions.

    Nothing is stored here, so those of earlier questions are looked up again: the same where the index is.

    Raises:
        UsageError: there are too many of them.
        NotNow: an index cannot be read.
    """
    last = max((at for at, each in enumerate(messages) if each.role == "user"), default=-1)
    questions = {
        at: text
        for at, message in enumerate(messages)
        if message.role == "user"
        and (text := before.get(at) or (message.typed.strip() if at == last else ""))
    }
    if len(questions) > _MOST_SEARCHES:
        raise UsageError(
            f"{len(questions)} questions of this conversation are to be looked up, at most {_MOST_SEARCHES} can be: begin a new one"
        )
    ground, done, known = Ground(()), list(messages), dict[int, NumberedPassage]()
    for at, message in enumerate(messages):
        if at not in questions:
            known |= passages_in([message])
            continue
        passages = search.found(questions[at])
        texts = [_text(each) for each in passages]
        told = as_documents(texts, known)
        done[at] = replace(message, parts=(*message.parts, *told))
        known |= passages_in([done[at]])
        ground.files |= {
            text.where: (each.name, _file_id(each))
            for text, each in zip(texts, passages, strict=True)
        }
        if at == last and at not in before:
            taken = {each.where for each in known.values()}
            ground.item = _item(questions[at])
            ground.results = list(_results(passages, texts, taken))
    ground.messages = tuple(done)
    return ground


def _text(found: "FoundPassage") -> PassageText:
    from localspec.retrieval.reading import place  # noqa: PLC0415 - all that reads files

    where = place(found.name, found.passage.first, found.passage.last)
    return PassageText(printable(where).replace('"', "?"), found.passage.text)


def _results(
    passages: "Sequence[FoundPassage]", texts: Sequence[PassageText], taken: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the passages that the model reads, with their scores as shares of the best one's."""
    best = max((each.score for each in passages), default=0) or 1
    for passage, text in zip(passages, texts, strict=True):
        if text.where in taken:
            yield {
                "file_id": _file_id(passage),
                "filename": passage.name,
                "score": round(max(0.0, passage.score / best), 4),
                "text": passage.passage.text,
                "attributes": {"where": text.where},
            }


def _file_id(found: "FoundPassage") -> str:
    """Return what names a file and nothing else, and tells nothing of where it is."""
    return f"file-{hashlib.sha256(str(found.path).encode(errors='replace')).hexdigest()[:24]}"


def _item(question: str) -> dict[str, Any]:
    name = f"fs_{secrets.token_hex(12)}"
    return {"type": CALL, "id": name, "status": "completed", "queries": [question]}


def told(item: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events that a search is told by in a stream.

    Args:
        item: as it is when it is done.
        index: its place in the output.
    """
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress", "results": None}
    yield "response.output_item.added", {"output_index": index, "item": begun}
    for state in ("in_progress", "searching", "completed"):
        yield f"response.{CALL}.{state}", at
    yield "response.output_item.done", {"output_index": index, "item": dict(item)}
