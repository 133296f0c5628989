"""The question of `run` and `chat`: words of the command line, stdin, a template, files, and passages of an index, which an answer cites."""

import codecs
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli
from localspec.cli.progress import ProgressLine
from localspec.display import notice, printable
from localspec.errors import HistoryError, LocalspecError, UsageError
from localspec.media import media_kind, why_not_taken
from localspec.messages import DocumentPart, MediaPart, Message
from localspec.models.registry import load_registry
from localspec.options import LEAST_PASSAGE_TOKENS, PASSAGE_TOKENS, LaunchOptions
from localspec.session.attachments import (
    Attachment,
    attached,
    attachment_of,
    label,
    question_with,
    read_attachment,
    unmatched,
    unmatched_line,
)
from localspec.session.citing import citations, passages_in
from localspec.session.documents import Docs
from localspec.session.preferences import FILE, Preferences, read_preferences
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.retrieval.index import Index
    from localspec.session.conversation import StoredConversation

# A shorter word may begin any sentence.
_LEAST_FAMILY = 4
_SIZED = re.compile(r"[\w.-]+[:-]\d+(\.\d+)?[bm]", re.IGNORECASE)
"""How models are called elsewhere, by their size."""
_MOST_BYTES = 64 << 20  # of stdin, which may have no end
_INPUT = "input"


def model_and_prompt(
    words: Sequence[str], *, chosen: bool = False, remote: bool = False
) -> tuple[str | None, str | None]:
    """Return the model and the prompt among words; None for one that is not there.

    The first word is the model if it is the name of one; alone, or in front of the prompt. `user/repo` may be two
    words with a slash, so alone it is a model only with its host, its quantisation, or if it was pulled before.

    Args:
        words: of the command line.
        chosen: whether an option names the model, so that all words are the prompt.
        remote: whether a server has the models, whose names it alone knows: then the first of several words is one.

    Raises:
        UsageError: the first of several words is not a model, or a single one looks very much like one.
    """
    if chosen or not words:
        return None, " ".join(words) if words else None
    first, rest = words[0], words[1:]
    if remote:
        return (first, " ".join(rest)) if rest else (None, first)
    registry = load_registry()
    if cli.is_model(first, registry, alone=not rest):
        return first, " ".join(rest) if rest else None
    likely = registry.like(first) if cli.is_one_word(first) else []
    hint = f" (did you mean {', '.join(likely)}?)" if likely else ""
    if rest and first.startswith("@"):
        raise UsageError(
            f"{first[:80]!r} is outside the quotes: put it inside, or use -f {first[1:80]}"
        )
    if rest:
        raise UsageError(
            f"{first[:80]!r} is not a model{hint}: put quotes around a prompt of several words"
        )
    known = likely and (_is_family(first, likely) or any(each.isdigit() for each in first))
    if known or _SIZED.fullmatch(first):
        raise UsageError(
            f"{first!r} is not a model{hint}; if it is your prompt, name the model with -m"
        )
    return None, first


def _is_family(text: str, names: Sequence[str]) -> bool:
    start = text.lower().partition(":")[0]
    return len(start) >= _LEAST_FAMILY and any(name.startswith(start) for name in names)


def with_model(settings: cli.Settings, *, quiet: bool) -> tuple[cli.Settings, str]:
    """Return settings with a model: if none is set, a person at a terminal chooses one, otherwise it is the default pair.

    Returns:
        The settings, and a notice if it is the default pair.

    Raises:
        UsageError: the person chooses none.
    """
    # A flag, a variable or the file may name a model, or a server that has one.
    if quiet or not {"pair", "target", "server"} <= settings.unset:
        return settings, ""
    from localspec.cli.first_run import default_notice, take_model  # noqa: PLC0415 - few have not chosen

    if sys.stdin.isatty() and sys.stderr.isatty():
        return settings.with_model(take_model()), ""
    return settings, default_notice()


def conversation_and_words(
    name: str, words: tuple[str, ...]
) -> "tuple[StoredConversation, tuple[str, ...]]":
    """Return the conversation that `run --continue` means, and the words that are left for model and prompt.

    A number is always a conversation. Without a prompt among the words, the name is the prompt; with one, it is a model or a title.

    Args:
        name: the value of `--continue`; may be empty.
        words: the others on the command line.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    if not name or name.removeprefix("#").isdecimal():
        return stored_conversation(name), words
    registry = load_registry()
    if len(words) == (cli.is_model(words[0], registry) if words else 0):
        return stored_conversation(""), (*words, name)
    if cli.is_model(name, registry):
        return stored_conversation(""), (name, *words)
    try:
        return stored_conversation(name), words
    except UsageError as error:
        raise UsageError(f"{error}; put quotes around a prompt of several words") from None


def stored_conversation(name: str) -> "StoredConversation":
    """Return the conversation of a number or a title; of an empty name, the last one.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    from localspec.session.conversation import History  # noqa: PLC0415 - few continue one

    with closing(History(data_dir() / "history")) as history:
        if line := history.taken_in_line:
            notice(line)
        latest = history.latest()
        if latest is None:
            if history.trouble is not None:  # it could not be read, and seems to be empty
                raise HistoryError(history.refusal)
            raise UsageError("no conversation to continue yet: ask without -c (--continue)")
        return history.named(name or str(latest))


def read_prompt(argument: str | None) -> str:
    """Return the prompt: the argument, stdin, or stdin followed by the argument.

    An argument `-`, or none, reads stdin. With an argument, stdin is read only if it is a pipe
    or a file: it is context for the prompt.

    Raises:
        UsageError: there is no prompt.
        LocalspecError: stdin is not UTF-8.
    """
    if argument is None or argument == "-":
        if sys.stdin.isatty():
            click.echo("Type the prompt, then press Ctrl-D on an empty line.", err=True)
        text = _read_stdin()
        if not text.strip():
            raise UsageError("stdin is empty: give a prompt on stdin or as an argument")
        return text
    if not argument.strip():
        raise UsageError("the prompt is empty: write something, or leave it out to read stdin")
    context = _read_stdin() if _stdin_has_context() else ""
    return f"{context}\n\n{argument}" if context.strip() else argument


def _stdin_has_context() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or replaced by an object without a file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _read_stdin() -> str:
    try:
        raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
    except OSError as error:
        raise LocalspecError(
            f"stdin cannot be read ({error.strerror}): give the prompt as an argument"
        ) from None
    kind = media_kind(raw) if b"\0" in raw else None
    if kind is not None:
        what = "a picture" if kind == "image" else "a sound"
        raise UsageError(
            f"stdin is {what}: attach it with -f -, and give the prompt as an argument"
        )
    if len(raw) > _MOST_BYTES:
        raise UsageError(
            f"stdin has more than {_MOST_BYTES >> 20} MB, more than any context holds: shorten it"
        )
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8 text (byte {raw[error.start]:#04x} at offset {error.start}): "
            "convert it, for example with iconv"
        ) from None
    return text.rstrip("\n")


def _stdin_attachment() -> Attachment:
    try:
        attachment = attachment_of(sys.stdin.buffer, "stdin")
    except OSError as error:
        raise LocalspecError(f"stdin cannot be read ({error.strerror}): name a file") from None
    if isinstance(attachment, DocumentPart) and not attachment.text.strip():
        raise UsageError("stdin is empty: leave out -f -, or give a file on stdin")
    return attachment


def require_hearing(load: LaunchOptions) -> None:
    """Raise UsageError if a target is known not to take sounds; a server knows that itself."""
    from localspec.models.entries import HubName  # noqa: PLC0415
    from localspec.models.gguf import read_header  # noqa: PLC0415
    from localspec.models.mmproj import encoded, model_that_takes, takes  # noqa: PLC0415
    from localspec.models.names import resolve  # noqa: PLC0415
    from localspec.models.requested import named_models  # noqa: PLC0415 - few speak

    if not load.can.local_files:
        return
    registry = load_registry()
    name = named_models(load, registry)[0]
    model = resolve(name, registry)
    if load.mmproj is not None:
        path = Path(load.mmproj).expanduser()
        media = () if load.reads_text_only else encoded(read_header(path))
    elif isinstance(model, HubName):
        return
    else:
        media = takes(model)
    if "audio" in media:
        return
    other = model_that_takes("audio", registry)
    if load.reads_text_only and other == name:
        other += " without --mmproj off"
    why_not = why_not_taken("audio", name, sees="image" in media, hears=False, other=other)
    if why_not is not None:
        raise UsageError(why_not)


def _recorded() -> MediaPart:
    """Return what the microphone hears until Enter."""
    from localspec.session.microphone import BLOCK_S, Microphone, enter_pressed  # noqa: PLC0415 - few speak

    if not sys.stdin.isatty():
        raise UsageError("--listen needs a terminal, where Enter ends it: attach a file with -f")
    with closing(Microphone()) as microphone, ProgressLine(enabled=True) as line:
        if not line.drawn:
            notice("recording: Enter ends it")
        while not (microphone.is_full or enter_pressed(BLOCK_S)):
            line.draw(f"{microphone.line} · Enter ends")
    return MediaPart.of(microphone.wav(), "recording.wav")


continue_option = click.option(
    "-c",
    "--continue",
    "go_on",
    is_flag=False,
    flag_value="",
    metavar="[N|TITLE]",
    help="Continue the last conversation, or the one of this number or title.",
)


@dataclass(frozen=True, slots=True)
class SystemFlags:
    """Flags that name a system prompt.

    Args:
        system: System prompt.
        persona: Named system prompt from chat.toml.
    """

    system: str | None = cli.flag("-s", "--system", "TEXT")
    persona: str | None = cli.flag("NAME", shell_complete=cli.complete_personas)

    @property
    def is_given(self) -> bool:
        """Whether one of them is given."""
        return (self.system, self.persona) != (None, None)

    def prompt(self, usual: str | None, preferences: Preferences | None = None) -> str | None:
        """Return the system prompt of the flags, or the usual one.

        Args:
            usual: the setting.
            preferences: with the personas; read from the file if None.

        Raises:
            UsageError: there is no such persona, or both flags are given.
        """
        if self.persona is None:
            return usual if self.system is None else self.system
        if self.system is not None:
            raise UsageError("--system and --persona cannot be combined: give one of them")
        return _text_of("persona", self.persona, (preferences or read_preferences()).personas)


def _only_index(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> str | None:  # noqa: ARG001
    if len({*names}) > 1:
        raise click.BadParameter(
            f"{' and '.join(names)} are several indexes, and an answer comes from one: "
            "`localspec index add FOLDERS… -n NAME` makes one of them"
        )
    return names[-1] if names else None


@dataclass(frozen=True, slots=True)
class DocsFlags:
    """Flags for answers from an index of files.

    Args:
        docs: Answer from an index of your files, and cite it. `localspec index` makes one.
    """

    docs: str | None = cli.flag(
        "NAME", shell_complete=cli.complete_indexes, multiple=True, callback=_only_index
    )
    docs_tokens: int = cli.flag(
        "N",
        type=click.IntRange(LEAST_PASSAGE_TOKENS),
        default=PASSAGE_TOKENS,
        help=f"Token limit for the passages of one question. Default: {PASSAGE_TOKENS}.",
    )

    def check(self) -> Docs:
        """Return the index.

        Raises:
            UsageError: there is no such index.
            LocalspecError: it cannot be read.
        """
        return Docs(self.docs or "", self.docs_tokens).check()

    def open(self) -> Docs:
        """Return the index, as `check` does, and print a notice if its vectors cannot be used."""
        docs = self.check()
        if docs.name:
            from localspec.retrieval.index import open_index  # noqa: PLC0415 - sqlite3, which few need

            with closing(open_index(docs.name)) as index:
                report_missing_vectors(index)
        return docs


@dataclass(frozen=True, slots=True)
class QuestionFlags:
    """Flags for attached files and for the template of a prompt.

    Args:
        files: Attach a text, PDF, DOCX, image or audio file, as @FILE does; - attaches stdin. Can be repeated.
        listen: Record from the microphone until Enter, and attach it.
        template: Named prompt template from chat.toml.
        params: Value of a template field; can be repeated.
    """

    files: tuple[str, ...] = cli.several("-f", "--file", "FILE")
    listen: bool = cli.switch()
    template: str | None = cli.flag(
        "-t", "--template", "NAME", shell_complete=cli.complete_personas
    )
    params: tuple[tuple[str, str], ...] = cli.several("-p", "--param", "NAME VALUE", nargs=2)

    def templated(self, prompt: str | None) -> str | None:
        """Return the prompt, put into the template if one is given.

        A template without a place for the input is followed by it; one with a place reads it from stdin if there is no prompt.

        Raises:
            UsageError: there is no such template, or fields without a template.
            TemplateError: it is not a Jinja template, or a field is missing.
        """
        name = self.template
        if name is None:
            if self.params:
                raise UsageError("--param fills in a template: name one with --template")
            return prompt
        from localspec.batch.line_template import LineTemplate  # noqa: PLC0415 - few use one

        source = _text_of("template", name, read_preferences().templates)
        if prompt in {None, "-"}:
            prompt = self.read_prompt(None) if _INPUT in source else None
        fields = dict(self.params)
        if prompt is not None:
            fields[_INPUT] = prompt
        for each in dict(self.params):
            if not re.search(rf"\b{re.escape(each)}\b", source):
                raise UsageError(
                    f"template {name} has no field {printable(each[:40])!r}: remove its --param"
                )
        given = "what --param NAME VALUE gives it"
        text = LineTemplate(source, f"template {name}", given).render(fields)
        return text if _INPUT in source or prompt is None else f"{text}\n\n{prompt}"

    def read_prompt(self, argument: str | None) -> str:
        """Return the prompt as the function `read_prompt` does; stdin is no part of it where it is attached, and speech may stand alone.

        Raises:
            UsageError: there is no prompt.
            LocalspecError: stdin is not UTF-8.
        """
        if argument is None and self.listen:
            return ""
        if "-" not in self.files:
            return read_prompt(argument)
        if argument is None or argument == "-" or not argument.strip():
            raise UsageError("-f - attaches stdin: give the prompt as an argument")
        return argument

    def message(
        self,
        text: str,
        docs: DocsFlags,
        typed: str = "",
        before: Sequence[Message] = (),
        *,
        quiet: bool = False,
    ) -> Message:
        """Return a question: the text, attached files, files mentioned with @ in the typed part, and passages.

        Args:
            text: all of the prompt.
            docs: the index of passages.
            typed: the part of the prompt that was typed.
            before: the conversation so far.
            quiet: print no notice.

        Raises:
            UsageError: a file cannot be read.
            LocalspecError: an index cannot be read.
        """
        index, typed = docs.open().parse_mention(typed)
        folder = Path.cwd()
        files = [
            _stdin_attachment() if name == "-" else read_attachment(name, folder)
            for name in dict.fromkeys(self.files)
        ]
        mentioned = attached(typed, folder)
        for each in () if quiet else files:
            if isinstance(each, DocumentPart) and not each.text.strip():
                notice(f"{printable(each.name)} is empty: nothing of it is read")
        for each in mentioned:  # also where little is printed: a text from elsewhere may name files
            notice(f"attached: {printable(label(each))}")
        files += mentioned
        for name in unmatched(typed, folder):
            line = unmatched_line(name, folder)
            if line.startswith("no file") and ("/" in name or Path(name).suffix):
                raise UsageError(f"no file matches {name}: correct the name, or write it without @")
            if not quiet:
                notice(line)
        passages = index.documents(typed or text, before)
        if (missed := index.missed_line(passages)) and not quiet:
            notice(missed)
        files += passages
        # Last: what fails before it costs no speech.
        return question_with(text, [*files, *([_recorded()] if self.listen else [])])


def report_missing_vectors(index: "Index") -> None:
    """Print a notice if the vectors of an index, or the model for them, are missing."""
    model = index.vector_model()
    if model is None:
        return
    from localspec.retrieval.embedding import is_here  # noqa: PLC0415 - few indexes have vectors

    if not is_here(model):
        notice(
            f"searching by words only: {model.name} is missing, run `localspec pull {model.name}`"
        )
    elif index.lacks_vectors():
        update = f"`localspec index update {index.path.stem}`"
        notice(f"searching by words only: vectors are missing, run {update}")


def cited_lines(text: str, messages: Sequence[Message]) -> Iterator[str]:
    """Yield the passages of the last question, and those that the answer cites, as lines."""
    known = passages_in(messages)
    cited = citations(text, known)
    read = passages_in(messages[-1:]).values()
    for each in dict.fromkeys((*read, *cited.passages)):
        yield f"{each}{' · cited' if each in cited.passages else ' · read'}"
    yield from (f"[{number}] names no passage" for number in cited.unknown)
    if known and text.strip() and not cited.passages:
        count = f"none of its {len(known)} passages" if len(known) > 1 else "no passage"
        yield f"the answer cites {count}: check it"


def cited_json(text: str, messages: Sequence[Message]) -> dict[str, Any]:
    """Return the passages of a conversation, and what an answer cites; nothing without passages."""
    known = passages_in(messages)
    cited = citations(text, known)
    numbers = {each.number for each in cited.passages}
    passages = [
        {"number": each.number, "where": each.where, "cited": each.number in numbers}
        for each in known.values()
    ]
    return {"passages": passages, "unknown_citations": list(cited.unknown)} if known else {}


def _text_of(what: str, name: str, texts: Mapping[str, str]) -> str:
    if name not in texts:
        known = ", ".join(texts)
        hint = f"choose one of {known}" if texts else f"add it under [{what}s] in {FILE}"
        raise UsageError(f"there is no {what} {name[:40]!r}: {hint}")
    return texts[name]
