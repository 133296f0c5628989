"""What a prompt is made of beside its words: a system prompt or a persona, a template, and files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from localspec.cli.completions import complete_personas
from localspec.cli.docs import docs_of
from localspec.cli.prompt import read_prompt
from localspec.display import notice
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.session.preferences import FILE, Preferences, read_preferences

Function = Callable[..., Any]

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
