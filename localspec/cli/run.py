"""`localspec run`: one prompt, one answer on stdout, everything else on stderr.

Imports nothing that loads models: where a server has them in memory already, its first token does not wait for that.
"""

import codecs
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from localspec.chat.events import Event, Finished, Reply, Text, Withheld
from localspec.chat.request import Request
from localspec.cli import CUT_OFF, INTERRUPTED
from localspec.cli.hands import RepliesAndCalls, tools_option, typed_answer, wants_tools
from localspec.cli.options import (
    SectionedCommand,
    complete_models,
    gate_option,
    gate_rules,
    launch_options,
    option_flags,
    own_option,
    reply_options,
    with_model,
    with_own,
)
from localspec.cli.output import AnswerStream, ReadingLine
from localspec.cli.prompt import conversation_and_words, model_and_prompt, named, read_prompt
from localspec.cli.question import (
    cited_json,
    cited_lines,
    continue_option,
    docs_options,
    question,
    question_options,
    system_options,
    system_prompt,
    templated,
)
from localspec.cli.recorded import workload_option
from localspec.cli.report import (
    RunOutcome,
    as_json,
    cut_short_as_json,
    is_complete,
    not_whole,
    one_line,
)
from localspec.decoding.round import StopReason
from localspec.display import code_blocks, notice, printable, wrapped
from localspec.errors import ContextOverflow, LocalspecError, UsageError
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.history.records import StoredConversation
    from localspec.session.conversation import SavedConversation
    from localspec.toolbox.loop import CarriedOut


@click.command(cls=SectionedCommand)
@click.argument("words", metavar="[MODEL] [PROMPT]", nargs=-1, shell_complete=complete_models)
@option_flags("models", "exact", "sampling", "structure")
@system_options
@question_options
@continue_option
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep the answer in the history, for --continue. Default: only on a terminal.",
)
@option_flags("context")
@click.option(
    "--raw", is_flag=True, help="Complete the prompt as plain text, without a chat template."
)
@click.option(
    "--json", "json_", is_flag=True, help="Print one JSON object with the text and figures."
)
@click.option("--code", is_flag=True, help="Print only the answer's code, when it is complete.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@option_flags("device")
@docs_options
@tools_option()
@gate_option
@own_option
@workload_option()
@click.option("--show-thinking", is_flag=True, help="Also print a reasoning model's thoughts.")
def run(words: tuple[str, ...], **flags: Any) -> int:
    """Answer PROMPT with MODEL, or with your default model.

    \b
        localspec run "Why is the sky blue?"
        localspec run qwen2.5-coder:1.5b "Reverse a list in Go."
        git diff | localspec run "Write a commit message for this."

    The first word is the model if it is a name that `localspec search` lists, a .gguf file, or
    user/repo:QUANT. With -m NAME, all words are the prompt.

    A pipe or file on stdin is attached to the prompt as context. Without a prompt, or with `-`,
    stdin is the prompt. On a terminal, `run` without a prompt starts the chat. `-c 5 "PROMPT"` and
    `-c TITLE "PROMPT"` continue another conversation than the last.

    The exit code is 6 if --code, --json-schema, --regex or a grammar was given and the answer was
    cut off, by --max-tokens or a full context.
    """  # noqa: D301 - click keeps lines behind a \b
    _check(flags)
    conversation = None
    if flags["go_on"] is not None:
        conversation, words = conversation_and_words(flags["go_on"], words)
    model, prompt = model_and_prompt(words, chosen=named(flags) is not None)
    flags["model"] = flags["model"] or model
    prompt = templated(prompt, flags)
    if prompt is None and _is_chat(flags):
        from localspec.cli.chat import start_chat  # noqa: PLC0415 - history and screens of it

        go_on = None if conversation is None else str(conversation.id)
        return start_chat({**flags, "go_on": go_on, "plain": False})
    kept = _kept(flags, conversation)
    if kept is not None and named(flags) is None:
        flags["model"] = kept.pair
    text = read_prompt(prompt)
    before = () if kept is None else tuple(each.message for each in kept.messages)
    said = None if flags["raw"] else question(text, flags, prompt or "", before)
    flags = with_own(with_model(flags))
    turns = RepliesAndCalls(flags)
    options, request = reply_options(flags), launch_options(flags)
    system = None if flags["raw"] else system_prompt(flags)

    if kept is not None and conversation is None:
        kept.system = system
    gate = gate_rules(flags["gate"])
    asked = _Question(kept, said, system, text, options, calls=wants_tools(flags), gate=gate)
    said_before = "".join(each.text for each in before)
    prompt_text = f"{system or ''}{said_before}{text if said is None else said.text}"
    outcome = _answer(request, asked.request, flags, turns, prompt_text)
    if outcome is None:
        return INTERRUPTED
    reply = outcome.reply
    if kept is not None:
        _keep(kept, turns.said, outcome.target, request)
    code = _report(outcome, turns.said, text, asked.messages, options, flags)
    return INTERRUPTED if turns.stopped or reply.stop_reason is StopReason.CANCELLED else code


class _Question:
    """The question of `run`, and the conversation that it belongs to.

    Args:
        kept: the conversation of the history; None where nothing is saved.
        said: the question; None where `text` goes to the model as it is.
        system: the system prompt of a question that is not saved.
        text: all of the prompt.
        options: how to answer.
        calls: whether functions may be called, so that several replies follow each other.
        gate: what is masked in answers.
    """

    def __init__(
        self,
        kept: "SavedConversation | None",
        said: Message | None,
        system: str | None,
        text: str,
        options: ReplyOptions,
        *,
        calls: bool = False,
        gate: str = "",
    ) -> None:
        self._kept, self._said, self._options, self._saved = kept, said, options, False
        self._gate = gate
        self._raw = text if said is None else None
        self._ephemeral = kept is None and not calls
        self.messages: tuple[Message, ...] = ()
        if said is not None and kept is not None:
            self.messages = kept.turns_with(said)
        elif said is not None:
            self.messages = (*([] if system is None else [Message.system(system)]), said)

    def request(self, *, save: bool = True) -> Request:
        """Return the request; unless `save` is false, the question is in the history from now on."""
        kept = self._kept
        asked = Request(
            0,
            self.messages,
            self._options,
            raw=self._raw,
            ephemeral=self._ephemeral,
            gate=self._gate,
        )
        if kept is None or self._said is None or not save:
            return asked
        if not self._saved:
            kept.say(self._said)
            self._saved = True
        return msgspec.structs.replace(asked, conversation=kept.number)


def _check(flags: dict[str, Any]) -> None:
    """Raise UsageError where flags cannot be combined."""
    if flags["raw"] and (flags["system"], flags["persona"]) != (None, None):
        raise UsageError("--raw and --system cannot be combined: raw text has no system prompt")
    if flags["code"] and (flags["json_"] or flags["show_thinking"]):
        raise UsageError("--code prints nothing else: remove --json and --show-thinking")
    if flags["raw"] and (flags["go_on"] is not None or flags["keep"] or flags["files"]):
        raise UsageError(
            "--raw takes only a prompt: remove -c (--continue), --keep and -f (--file)"
        )
    if flags["raw"] and flags["docs"]:
        raise UsageError("--raw and --docs cannot be combined: raw text has no place for passages")
    if flags["raw"] and wants_tools(flags):
        raise UsageError("--raw and --tools cannot be combined: raw text has no form for calls")
    if flags["go_on"] is not None and (flags["system"], flags["persona"]) != (None, None):
        raise UsageError(
            "-c (--continue) keeps the conversation's own system prompt: remove --system"
        )


def _print_code(text: str, *, quiet: bool) -> None:
    """Print the blocks of code in the first one's language; where there are none, the answer may be nothing but code."""
    blocks = code_blocks(text)
    code = [each for language, each in blocks if language == blocks[0][0]]
    if not (blocks or quiet):
        notice("the answer has no block of code: printing all of it")
    if len(code) < len(blocks) and not quiet:
        notice(
            f"printing {len(code)} of {len(blocks)} blocks of code: those in the first one's language"
        )
    stream = AnswerStream(silent=False, show_thinking=False)
    stream.write(Text("\n\n".join(code) or text))
    stream.end()


def _is_chat(flags: dict[str, Any]) -> bool:
    """Return whether nobody but a person at a terminal could say what to answer."""
    asked = ("raw", "json_", "code", "files", "template", "show_thinking", "quiet")
    return _at_terminal() and not any(flags[each] for each in asked)


def _is_kept(flags: dict[str, Any]) -> bool:
    """Return whether the answer is read by a person, who may go on from it."""
    return _at_terminal() and not (flags["raw"] or flags["json_"] or flags["quiet"])


def _kept(
    flags: dict[str, Any], conversation: "StoredConversation | None"
) -> "SavedConversation | None":
    """Return the conversation of the history that the question belongs to, and print which one goes on; None without a history."""
    if not (conversation or (_is_kept(flags) if flags["keep"] is None else flags["keep"])):
        return None
    from localspec.history.archive import History  # noqa: PLC0415 - the history's database
    from localspec.session.conversation import SavedConversation  # noqa: PLC0415 - likewise

    kept = SavedConversation(History(data_dir() / "history"))
    if conversation is not None:
        kept.open(conversation.id)
        if not (flags["quiet"] or flags["json_"]):
            notice(kept.continuing)
    return kept


def _keep(
    kept: "SavedConversation",
    said: "Sequence[Reply | CarriedOut]",
    target: str,
    request: LaunchOptions,
) -> None:
    """Save replies and the results of their calls, and what was loaded for them."""
    from localspec.launch.names import name_of, with_names  # noqa: PLC0415 - a server has its own

    kept.set_pair(name_of(with_names(request)))
    for each in said:
        if isinstance(each, Reply):
            kept.add_reply(each, target)
        else:
            kept.add_result(each)
    kept.history.close()


def _is_asked(flags: dict[str, Any]) -> bool:
    """Return whether a person reads the answer as it comes, and can say what they want to see of it."""
    silent = flags["json_"] or flags["code"] or flags["quiet"]
    return _at_terminal() and sys.stderr.isatty() and not silent


def _revealed(events: Iterator[Event]) -> Iterator[Event]:
    """Yield events, in their texts what a rule masked as it was, where the user wants to see it."""
    waiting: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, Withheld) and not event.in_call:
            waiting.append((event.mask, event.text if _wants_to_see(event.rule) else event.mask))
        elif isinstance(event, Text):
            text, rest = "", event.text
            for mask, instead in waiting:
                before, _, rest = rest.partition(mask)
                text += before + instead
            waiting.clear()
            yield Text(text + rest, event.thinking)
        else:
            yield event


def _wants_to_see(rule: str) -> bool:
    """Ask whether something may be seen; what it is, the question does not say."""
    sys.stdout.flush()
    try:
        answer = typed_answer(f"\nlocalspec: the answer has here: {rule}. Show it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _answer(
    request: LaunchOptions,
    asked: Callable[..., Request],
    flags: dict[str, Any],
    turns: RepliesAndCalls,
    prompt: str,
) -> RunOutcome | None:
    """Answer, by a server that has the model in memory, or else here; return None where loading was interrupted.

    Args:
        request: what answers.
        asked: returns the request, and saves the question unless told `save=False`.
        flags: of the verb.
        turns: carries out what is called.
        prompt: all that is asked, by which a context is sized.
    """
    silent = flags["json_"] or flags["code"]
    shown = _Shown(AnswerStream(silent=silent, show_thinking=flags["show_thinking"]), flags)
    untold = [flags["unasked"]] if flags["unasked"] else []

    def tell(*notes: str) -> None:
        for note in () if flags["quiet"] else (*untold, *notes):
            notice(note)
        untold.clear()

    try:
        return _answered(request, flags, asked, turns, prompt, shown, tell)
    except _AnswerHere as here:
        tell(str(here))
        own = {**flags, "own": True}
        return _answered(request, own, asked, turns, prompt, shown, tell)


class _AnswerHere(LocalspecError):
    """A server did not answer, for this reason, and nothing came of it yet."""


def _answered(
    launch: LaunchOptions,
    flags: dict[str, Any],
    asked: Callable[..., Request],
    turns: RepliesAndCalls,
    prompt: str,
    shown: "_Shown",
    tell: Callable[..., None],
) -> RunOutcome | None:
    """Answer by an engine; return None where loading was interrupted.

    Raises:
        _AnswerHere: a server cannot, and this process may.
    """
    # Help and errors of flags do without all of this.
    from localspec.cli.interrupt import Interrupts  # noqa: PLC0415
    from localspec.cli.output import ProgressLine  # noqa: PLC0415
    from localspec.engine.engine import (  # noqa: PLC0415
        EngineGone,
        FirstRequest,
        Interrupted,
        entered,
        iterate,
    )
    from localspec.engine.protocol import Downloading, Load, Notice  # noqa: PLC0415
    from localspec.launch.engine import open_engine  # noqa: PLC0415

    interrupts, line = Interrupts(), ProgressLine(enabled=not flags["quiet"])
    load = Load(launch, keep=wants_tools(flags), workload=flags["workload"])

    def progress(moment: Notice) -> None:
        if isinstance(moment, Downloading):
            tell()  # which model it is that is being downloaded
        line.show(moment)

    first = FirstRequest(prompt, partial(asked, save=False))
    opening = open_engine(load, progress, interrupts, own=flags["own"], first=first, notify=tell)
    with ExitStack() as stack:
        try:
            with line:
                engine = stack.enter_context(entered(opening))
        except Interrupted:
            return None

        def answer(request: Request) -> Reply:
            return shown(iterate(engine.stream(request)))

        tell(*engine.ready.notes)
        try:
            reply = turns.answered(asked(), answer, lambda: interrupts.is_set)
        except EngineGone as error:
            if engine.is_shared and not (shown.begun or turns.said):
                raise _AnswerHere(f"{error}: loading the model here") from None
            # What was called is not carried out twice.
            when = (
                ", in the middle of the answer: ask again"
                if engine.is_shared
                else ": ask again when it is back"
            )
            gone = EngineGone(f"{error}{when}")
            shown.break_off(gone)
            raise gone from None
        except ContextOverflow:
            if not engine.is_shared or launch.load.n_ctx is not None or shown.begun or turns.said:
                raise
            reason = "the server's context is too small for this prompt: loading the model here"
            raise _AnswerHere(reason) from None
        ready = engine.ready
        return RunOutcome(reply, ready.target, ready.draft_model, ready.load_s, engine.no_drafting)


class _Shown:
    """Writes an answer as its events come, and before it how much of the prompt is read.

    Args:
        stream: takes its text.
        flags: of the verb.

    Attributes:
        begun: whether there was any text.
    """

    def __init__(self, stream: AnswerStream, flags: dict[str, Any]) -> None:
        self._stream, self._flags = stream, flags
        self._texts: list[Text] = []
        self._answer, self._written = "", 0
        self.begun = False

    def __call__(self, events: Iterator[Event]) -> Reply:
        """Write all of it."""
        self._texts.clear()  # of the reply before this one, whose calls were carried out
        self._answer, self._written = "", 0
        with ReadingLine(enabled=not self._flags["quiet"]) as line:
            for event in _revealed(events) if _is_asked(self._flags) else events:
                line.take(event)
                if isinstance(event, Finished):
                    held = self._answer[self._written :]
                    if event.reply.calls and not self._flags["quiet"] and held.strip():
                        click.echo(printable(held.strip(), "\n"), err=True)
                    elif not event.reply.calls:
                        self._write(len(self._answer))
                    self._stream.end()
                    return event.reply
                if isinstance(event, Text):
                    self.begun = True
                    self._texts.append(event)
                    self._take(event)
        raise AssertionError("a stream of events ends with Finished")

    def _take(self, event: Text) -> None:
        """Write a text, but for what may be a call: that is none of the answer."""
        if event.thinking or not wants_tools(self._flags):
            self._stream.write(event)
            return
        from localspec.chat.written_calls import words_end  # noqa: PLC0415 - most call nothing

        self._answer += event.text
        self._write(words_end(self._answer))

    def _write(self, end: int) -> None:
        if end > self._written:
            self._stream.write(Text(self._answer[self._written : end]))
            self._written = end

    def break_off(self, error: LocalspecError) -> None:
        """End the answer where it stands; one that was to be printed in the end is printed as far as it came."""
        if not self.begun:
            return
        self._write(len(self._answer))
        self._stream.end()
        text, thinking = (
            "".join(each.text for each in self._texts if each.thinking is of_thoughts)
            for of_thoughts in (False, True)
        )
        if self._flags["json_"]:
            click.echo(cut_short_as_json(text, thinking, error, only_ascii=_only_ascii()))
        elif self._flags["code"] and text:
            _print_code(text, quiet=self._flags["quiet"])


def _only_ascii() -> bool:
    """Return whether stdout has not all characters."""
    return codecs.lookup(sys.stdout.encoding).name != "utf-8"


def _report(
    outcome: RunOutcome,
    said: "Sequence[Reply | CarriedOut]",
    text: str,
    messages: Sequence[Message],
    options: ReplyOptions,
    flags: dict[str, Any],
) -> int:
    """Print the figures, and what there is to know of the answer; return the exit code."""
    reply, bound = outcome.reply, options.answer_grammar is not None
    if flags["json_"]:
        # Its patterns take a while to be compiled, which only this has to wait for.
        from localspec.telemetry.workload import workload_of  # noqa: PLC0415

        workload = flags["workload"] or workload_of(text, reply.text)
        cited = cited_json(reply.text, messages)
        click.echo(as_json(outcome, workload, said, cited, bound=bound, only_ascii=_only_ascii()))
    if flags["code"]:
        _print_code(reply.text, quiet=flags["quiet"])
    if not flags["quiet"] and not flags["json_"]:
        for line in cited_lines(reply.text, messages):
            notice(printable(line))
        click.echo(wrapped(one_line(outcome), sys.stderr), err=True)
    cut_off = (bound or flags["code"]) and not is_complete(reply, bound=bound)
    if cut_off and not flags["quiet"]:
        notice(not_whole(reply, bound=bound))
    sys.stdout.flush()
    return CUT_OFF if cut_off else 0
