"""`--docs`: the index that a verb answers from, and what an answer cites."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import complete_indexes
from localspec.display import notice
from localspec.messages import Message
from localspec.retrieval import LEAST_TOKENS, USUAL_TOKENS

if TYPE_CHECKING:
    from localspec.retrieval.index import Index
    from localspec.retrieval.retriever import Docs

Function = Callable[..., Any]


def docs_options(command: Function) -> Function:
    """Add `--docs` and `--docs-tokens` to a command."""
    command = click.option(
        "--docs-tokens",
        type=click.IntRange(LEAST_TOKENS),
        default=USUAL_TOKENS,
        metavar="N",
        help=f"Most tokens that passages of one question may take. Default: {USUAL_TOKENS}.",
    )(command)
    return click.option(
        "--docs",
        metavar="NAME",
        shell_complete=complete_indexes,
        help="Answer from an index of your files, and cite it. `localspec index` makes one.",
    )(command)


def docs_of(flags: Mapping[str, Any]) -> "Docs":
    """Return what questions are answered from, and say so where its vectors cannot be used; see `checked_docs`."""
    docs = checked_docs(flags)
    if docs.name:
        from localspec.retrieval.index import open_index  # noqa: PLC0415 - sqlite3, which few need

        with closing(open_index(docs.name)) as index:
            tell_of_missing_model(index)
    return docs


def checked_docs(flags: Mapping[str, Any]) -> "Docs":
    """Return what questions are answered from.

    Raises:
        UsageError: there is no such index.
        LocalspecError: it cannot be read.
    """
    from localspec.retrieval.retriever import Docs  # noqa: PLC0415 - not for --help

    return Docs(flags["docs"] or "", flags.get("docs_tokens", USUAL_TOKENS)).check()


def tell_of_missing_model(index: "Index") -> None:
    """Say so where an index is to be searched by vectors, and they or the model that makes them are not here."""
    model = index.vector_model()
    if model is None:
        return
    from localspec.retrieval.embedding import is_here  # noqa: PLC0415 - few indexes have vectors

    if not is_here(model):
        notice(
            f"found by words alone: {model.name} is not here, `localspec pull {model.name}` fetches it"
        )
    elif index.lacks_vectors():
        notice(
            f"found by words alone: `localspec index update {index.path.stem}` makes the vectors"
        )


def cited_lines(text: str, messages: Sequence[Message]) -> Iterator[str]:
    """Yield which passages went with the last question, and which the answer cites, for people; nothing without passages."""
    from localspec.retrieval.citing import citations, passages_in  # noqa: PLC0415 - likewise

    known = passages_in(messages)
    found = citations(text, known)
    read = passages_in(messages[-1:]).values()
    for each in dict.fromkeys((*read, *found.passages)):
        yield f"{each}{' · cited' if each in found.passages else ' · read'}"
    yield from (f"[{number}] names no passage" for number in found.unknown)
    if known and text.strip() and not found.passages:
        count = f"none of its {len(known)} passages" if len(known) > 1 else "no passage"
        yield f"the answer cites {count}: check it"


def cited_json(text: str, messages: Sequence[Message]) -> dict[str, Any]:
    """Return the passages of a conversation, and what an answer cites; nothing where it has none."""
    from localspec.retrieval.citing import citations, passages_in  # noqa: PLC0415 - likewise

    known = passages_in(messages)
    if not known:
        return {}
    found = citations(text, known)
    cited = {each.number for each in found.passages}
    passages = [
        {"number": each.number, "where": each.where, "cited": each.number in cited}
        for each in known.values()
    ]
    return {"passages": passages, "unknown_citations": list(found.unknown)}
