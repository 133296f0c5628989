"""What a question is made of beside its words: a system prompt or a persona, a template, files, and passages of an index, which its answer cites."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import complete_indexes, complete_personas
from localspec.cli.prompt import read_prompt
from localspec.display import notice
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.retrieval import LEAST_TOKENS, USUAL_TOKENS
from localspec.session.preferences import FILE, Preferences, read_preferences

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


_INPUT = "input"


continue_option = click.option(
    "-c",
    "--continue",
    "go_on",
    is_flag=False,
    flag_value="",
    metavar="[N|TITLE]",
    help="Continue the last conversation, or the one named.",
)


def system_options(command: Function) -> Function:
    """Add the flags that name a system prompt."""
    persona = click.option(
        "--persona",
        metavar="NAME",
        shell_complete=complete_personas,
        help="Named system prompt from chat.toml.",
    )
    return click.option("-s", "--system", metavar="TEXT", help="System prompt.")(persona(command))


def question_options(command: Function) -> Function:
    """Add the flags that say what goes with a prompt, and around it."""
    for add in (
        click.option(
            "-p",
            "--param",
            "params",
            nargs=2,
            multiple=True,
            metavar="NAME VALUE",
            help="Value of a template field; can be repeated.",
        ),
        click.option(
            "-t",
            "--template",
            metavar="NAME",
            shell_complete=complete_personas,
            help="Named prompt template from chat.toml.",
        ),
        click.option(
            "-f",
            "--file",
            "files",
            multiple=True,
            metavar="FILE",
            help="Attach a text file, as @FILE does. Can be repeated.",
        ),
    ):
        command = add(command)
    return command


def system_prompt(flags: Mapping[str, Any], preferences: Preferences | None = None) -> str | None:
    """Return the system prompt that flags name, or that is set.

    Args:
        flags: of a verb, as they are configured.
        preferences: where personas are; read if None and needed.

    Raises:
        UsageError: there is no such persona, or both are given.
    """
    name, system = flags["persona"], flags["system"]
    if name is None:
        return flags["usual_system"] if system is None else system  # type: ignore[no-any-return]
    if system is not None:
        raise UsageError("--system and --persona cannot be combined: give one of them")
    return _named("persona", name, (preferences or read_preferences()).personas)


def templated(prompt: str | None, flags: Mapping[str, Any]) -> str | None:
    """Return the prompt that a template makes of what was written; without a template, what was written.

    A template that has no place for the input is followed by it; one that has, reads it from stdin where nothing was written.

    Raises:
        UsageError: there is no such template, or fields without one.
        TemplateError: it is no jinja, or a field is missing.
    """
    name = flags["template"]
    if name is None:
        if flags["params"]:
            raise UsageError("--param fills in a template: name one with --template")
        return prompt
    from localspec.batch.line_template import LineTemplate  # noqa: PLC0415 - few use one

    source = _named("template", name, read_preferences().templates)
    if prompt in {None, "-"}:
        prompt = read_prompt(None) if _INPUT in source else None
    fields = dict(flags["params"])
    if prompt is not None:
        fields[_INPUT] = prompt
    text = LineTemplate(source, f"template {name}").render(fields)
    return text if _INPUT in source or prompt is None else f"{text}\n\n{prompt}"


def question(
    text: str, flags: Mapping[str, Any], typed: str = "", before: Sequence[Message] = ()
) -> Message:
    """Return what is said: the text, the files that options name, those that the typed part mentions with @, and passages.

    Args:
        text: all of the prompt.
        flags: of the verb.
        typed: what of the prompt was typed.
        before: the conversation so far.

    Raises:
        UsageError: a file cannot be read.
        LocalspecError: an index cannot be read.
    """
    from localspec.session.attachments import attached, read_document, unmatched  # noqa: PLC0415

    docs, typed = docs_of(flags).parse_mention(typed)
    folder = Path.cwd()
    documents = [read_document(name, folder) for name in flags["files"]]
    documents += attached(typed, folder)
    for name in unmatched(typed, folder):
        if "/" in name or Path(name).suffix:
            raise UsageError(f"no file matches {name}: correct the name, or write it without @")
        if not flags["quiet"]:
            notice(f"no file matches {name}: sent as text")
    documents += docs.documents(typed or text, before)
    return Message.user(text, {each.name: each for each in documents}.values())


def _named(what: str, name: str, texts: Mapping[str, str]) -> str:
    if name not in texts:
        known = ", ".join(texts)
        hint = f"choose one of {known}" if texts else f"add it under [{what}s] in {FILE}"
        raise UsageError(f"there is no {what} {name[:40]!r}: {hint}")
    return texts[name]
