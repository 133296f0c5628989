"""`localspec run`: one prompt, one answer on stdout, everything else on stderr.

Imports nothing that loads models: with a running server that has them in memory, the first token does not wait for that.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from localspec.chat.events import Event, Finished, Reply, Text, Withheld
from localspec.chat.request import Request
from localspec.cli import CUT_OFF, INTERRUPTED
from localspec.cli import options as cli
from localspec.cli.interrupt import Interrupts
from localspec.cli.output import (
    AnswerStream,
    ReadingLine,
    RunOutcome,
    cut_short_json,
    incomplete_line,
    is_complete,
    print_code,
)
from localspec.cli.progress import ProgressLine, print_json
from localspec.cli.prompt import (
    DocsFlags,
    QuestionFlags,
    SystemFlags,
    cited_json,
    cited_lines,
    continue_option,
    conversation_and_words,
    model_and_prompt,
    require_hearing,
    with_model,
)
from localspec.cli.tools import ChatFlags, RepliesAndCalls, ToolFlags, typed_answer
from localspec.decoding.round import StopReason
from localspec.display import notice, printable
from localspec.engine.engine import Engine, Needs
from localspec.engine.protocol import Downloading, Load, Notice
from localspec.engine.sync import entered, iterate, run_sync
from localspec.errors import ContextOverflow, EngineGone, Interrupted, LocalspecError, UsageError
from localspec.launch.engine import open_engine
from localspec.messages import Message
from localspec.models.requested import name_of, with_names
from localspec.session.attachments import read_prediction
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.session.conversation import SavedConversation, StoredConversation


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """Flags for what is printed and kept.

    Args:
        raw: Complete the prompt as plain text, without a chat template.
        json_: Print one JSON object with the text and figures.
        code: Print only the code of the answer, once it is complete.
        quiet: Print only errors on stderr, and files that @ attaches.
        show_thinking: Also print a reasoning model's thoughts.
        keep: Save the answer in the history, for --continue. Default: only on a terminal, and with -c.
    """

    raw: bool = cli.switch()
    json_: bool = cli.switch()
    code: bool = cli.switch()
    quiet: bool = cli.switch("-q", "--quiet")
    show_thinking: bool = cli.switch()
    keep: bool | None = cli.flag("--keep/--no-keep")

    @property
    def is_silent(self) -> bool:
        """Whether nothing is printed before the answer is complete."""
        return self.json_ or self.code

    @property
    def is_interactive(self) -> bool:
        """Whether the answer goes to a person at a terminal, who may continue the conversation."""
        return _at_terminal() and not (self.raw or self.json_ or self.quiet)

    @property
    def can_ask(self) -> bool:
        """Whether a person watches the answer as it comes, and can answer questions about it."""
        return _at_terminal() and sys.stderr.isatty() and not (self.is_silent or self.quiet)


@dataclass(frozen=True, slots=True)
class RunFlags(ChatFlags):
    """All groups of flags of `run`."""

    question: QuestionFlags
    output: OutputFlags

    @property
    def is_chat(self) -> bool:
        """Whether a person at a terminal gave no flag that only `run` has; without a prompt, the chat starts in its place."""
        output, asked = self.output, self.question
        given = output.code, output.show_thinking, asked.files, asked.listen, asked.template
        return output.is_interactive and not any(given)


def _starts_chat(answer: Callable[..., int]) -> Callable[..., int]:
    """Have a verb begin with model, prompt and conversation of its words; without a prompt, the chat starts in its place."""

    @wraps(answer)
    def call(
        words: tuple[str, ...],
        settings: cli.Settings,
        go_on: str | None,
        prediction: str | None,
        workload: str | None,
        **given: Any,
    ) -> int:
        asked, conversation = RunFlags(**given), None
        _check(asked, continues=go_on is not None)
        if go_on is not None:
            conversation, words = conversation_and_words(go_on, words)
        model, prompt = model_and_prompt(
            words, chosen=settings.named_model is not None, remote=not settings.can.local_files
        )
        settings, prompt = settings.with_model(model), asked.question.templated(prompt)
        if prompt is None and asked.is_chat:
            from localspec.cli.chat_front import start_chat  # noqa: PLC0415 - history and screens of it

            number = None if conversation is None else str(conversation.id)
            return start_chat(settings, asked, go_on=number, prediction=prediction)
        return answer(prompt, settings, asked, conversation, prediction, workload)

    return call


@click.command(cls=cli.SectionedCommand)
@click.argument("words", metavar="[MODEL] [PROMPT]", nargs=-1, shell_complete=cli.complete_models)
@cli.option_flags("models", "server", "exact", "sampling", "structure", "context", "device")
@cli.flags(
    system=SystemFlags, question=QuestionFlags, docs=DocsFlags, tools=ToolFlags, output=OutputFlags
)
@continue_option
@cli.prediction_option
@cli.gate_option
@cli.own_option
@cli.workload_option
@cli.with_settings
@_starts_chat
def run(
    prompt: str | None,
    settings: cli.Settings,
    asked: RunFlags,
    conversation: "StoredConversation | None",
    prediction: str | None,
    workload: str | None,
) -> int:
    """Answer PROMPT with MODEL, or with your default model.

    \b
        localspec run "Why is the sky blue?"
        localspec run qwen2.5-coder:1.5b "Reverse a list in Go."
        git diff | localspec run "Write a commit message for this."

    The first word is the model if `localspec search` lists it, or if it is a .gguf file or
    user/repo:QUANT. With -m NAME, all words are the prompt.

    Text piped to stdin is added to the prompt. Without a prompt, or with `-`, stdin is the prompt.
    On a terminal, `run` without a prompt starts the chat. `-c 5 "PROMPT"` continues conversation 5,
    `-c TITLE "PROMPT"` the one with that title.

    The exit code is 6 if --code, --json-schema, --regex or a grammar was given and the answer was
    cut off.
    """  # noqa: D301 - click keeps lines behind a \b
    question, output = asked.question, asked.output
    saved = _saved_conversation(conversation, output)
    if saved is not None and settings.named_model is None and settings.can.local_files:
        settings = settings.with_model(saved.pair)
    text = question.read_prompt(prompt)
    before = () if saved is None else tuple(each.message for each in saved.messages)
    message = None
    if question.listen:
        require_hearing(settings.launch)
    if not output.raw:
        message = question.message(text, asked.docs, prompt or "", before, quiet=output.quiet)
    settings, default = with_model(settings, quiet=output.quiet or output.json_)
    default = "; ".join(filter(None, [default, *settings.unusual]))
    launch, system_text = (
        settings.launch,
        None if output.raw else asked.system.prompt(settings.system),
    )
    turns = RepliesAndCalls(asked.runner(offline=launch.offline), quiet=output.quiet)
    if saved is not None and conversation is None:
        saved.system = system_text
    request = Request(
        0,
        _messages(message, saved, system_text),
        settings.reply,
        raw=None if message else text,
        ephemeral=(saved is None or output.keep is False) and not asked.tools.wanted,
        gate=settings.gate,
        prediction=read_prediction(prediction, Path.cwd()),
    )
    if saved is not None and output.keep is False:  # it was only read
        saved.history.close()
        saved = None
    load = Load(
        launch,
        calls=asked.tools.wanted,
        workload=workload,
        given=settings.given_sampling,
        own=settings.own,
    )
    answer = RunAnswer(load, request, turns, output, saved, message, default)
    with ExitStack() as engine:  # which has to keep what it read: that waits until all is printed
        return _answered(answer, engine, settings, output, workload)


def _answered(
    answer: "RunAnswer",
    engine: ExitStack,
    settings: cli.Settings,
    output: OutputFlags,
    workload: str | None,
) -> int:
    """Have a question answered, save it, and report; return the exit code."""
    saved, unsaved = answer.saved, None
    try:
        outcome = answer.outcome(engine)
        if saved is not None and outcome is not None:
            if settings.can.local_files:
                saved.set_pair(name_of(with_names(settings.launch)))
            days = settings.values["history_days"]
            saved.history.expire(days, lambda: saved.conversation, most=_MOST_EXPIRED)
    finally:
        if saved is not None and (unsaved := saved.history.close()) is not None:
            notice(unsaved.line)
    if outcome is None:
        return INTERRUPTED
    code = _report(outcome, answer.request, output, workload) or (
        0 if unsaved is None else unsaved.code
    )
    cancelled = answer.stopped or outcome.reply.stop_reason is StopReason.CANCELLED
    return INTERRUPTED if cancelled else code


def _messages(
    message: Message | None, saved: "SavedConversation | None", system: str | None
) -> tuple[Message, ...]:
    """Return the conversation up to a question; nothing for a raw prompt."""
    if message is None:
        return ()
    if saved is not None:
        return saved.turns_with(message)
    return (message,) if system is None else (Message.system(system), message)


def _check(asked: RunFlags, *, continues: bool) -> None:
    """Raise UsageError if flags cannot be combined."""
    output, question = asked.output, asked.question
    raw, no_raw = output.raw, "--raw and {} cannot be combined: raw text has no {}"
    for is_wrong, problem in (
        (
            output.code and (output.json_ or output.show_thinking),
            "--code prints nothing else: remove --json and --show-thinking",
        ),
        (
            continues and asked.system.is_given,
            "-c (--continue) keeps the conversation's own system prompt: remove --system",
        ),
        (
            raw and (continues or output.keep or question.files or question.listen),
            "--raw takes only a prompt: remove -c (--continue), --keep, -f (--file) and --listen",
        ),
        (raw and asked.system.is_given, no_raw.format("--system", "system prompt")),
        (raw and cli.is_typed("think"), no_raw.format("--think", "chat template")),
        (raw and asked.docs.docs, no_raw.format("--docs", "place for passages")),
        (raw and asked.tools.wanted, no_raw.format("--tools", "format for calls")),
    ):
        if is_wrong:
            raise UsageError(problem)


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _saved_conversation(
    conversation: "StoredConversation | None", output: OutputFlags
) -> "SavedConversation | None":
    """Return the conversation that the answer is saved in, and print which one is continued; None if none is."""
    keep = output.is_interactive if output.keep is None else output.keep
    if conversation is None and not keep:
        return None
    from localspec.session.conversation import History, SavedConversation  # noqa: PLC0415 - a feature that can be taken away

    saved = SavedConversation(History(data_dir() / "history"))
    if not output.quiet and (line := saved.history.taken_in_line):
        notice(line)
    if conversation is not None:
        saved.open(conversation.id)
        if not (output.quiet or output.json_):
            notice(saved.continuing)
    return saved


_MOST_EXPIRED = 5
"""Old conversations that go with one answer: more would make it wait."""


class AnswerHereError(LocalspecError):
    """A server did not answer, for this reason, and nothing was printed yet."""


class RunAnswer:
    """Has a question answered by a running server that has the model, or in this process.

    Args:
        load: the model.
        request: the question.
        turns: carries out calls.
        output: what is printed.
        saved: the conversation that the question is saved in; None if it is not.
        message: the question as it is saved.
        default: a notice about the default model; may be empty.
    """

    def __init__(
        self,
        load: Load,
        request: Request,
        turns: RepliesAndCalls,
        output: OutputFlags,
        saved: "SavedConversation | None" = None,
        message: Message | None = None,
        default: str = "",
    ) -> None:
        self._load, self.request, self._turns = load, request, turns
        self._output = output
        self.saved, self._unsaved, self._n_saved = saved, message, 0
        self._notices = [default] if default else []
        bound = request.options.answer_grammar is not None
        self._writer = AnswerWriter(output, calls=load.calls, bound=bound)

    @property
    def stopped(self) -> bool:
        """Whether the user stopped calls."""
        return self._turns.stopped

    def outcome(self, stack: ExitStack) -> RunOutcome | None:
        """Return the last reply; None if loading was interrupted. The engine closes with the stack."""
        try:
            return self._answer(stack, self._load)
        except AnswerHereError as reason:
            stack.close()
            self._notify(str(reason))
            return self._answer(stack, msgspec.structs.replace(self._load, own=True))

    def _answer(self, stack: ExitStack, load: Load) -> RunOutcome | None:
        interrupts, line = Interrupts(), ProgressLine(enabled=not self._output.quiet)

        def progress(moment: Notice) -> None:
            if isinstance(moment, Downloading):
                self._notify()  # names the default model before its download
            line.show(moment)

        needs = Needs(prompt=self.request)
        opening = open_engine(load, needs, progress, interrupts, self._notify)
        try:
            with line:
                engine = stack.enter_context(entered(opening))
                ready = run_sync(engine.loaded())
        except Interrupted:
            return None
        self._notify(*ready.notes)
        return RunOutcome(
            self._reply(engine, interrupts),
            ready.target,
            ready.draft_model,
            ready.load_s,
            engine.no_drafting,
            engine.reason,
            self._turns.items,
            not 0 < ready.longest <= ready.n_ctx,
        )

    def _save_question(self) -> None:
        if self.saved is not None and self._unsaved is not None:
            self.saved.say(self._unsaved)
            self._unsaved = None
            self.request = msgspec.structs.replace(self.request, conversation=self.saved.number)

    def _save_results(self) -> None:
        """Save the results of calls that came since the last reply, which is saved as it comes."""
        new, self._n_saved = self._turns.items[self._n_saved :], len(self._turns.items)
        for each in new:
            if self.saved is not None and not isinstance(each, Reply):
                self.saved.add_result(each)

    def _reply(self, engine: Engine, interrupts: Interrupts) -> Reply:
        """Return the last reply.

        Raises:
            AnswerHereError: a server cannot answer, and this process may.
        """
        target = engine.ready.target

        def answer(request: Request) -> Reply:
            events = iterate(engine.stream(request))
            if self.saved is not None:
                self._save_results()
                events = recorded(events, self.saved, target)
            return self._writer.write(events)

        self._save_question()
        try:
            last = self._turns.last_reply(self.request, answer, lambda: interrupts.is_set)
        except EngineGone as error:
            if self._may_repeat(engine):
                raise AnswerHereError(f"{error}: loading the model here") from None
            when = ", in the middle of the answer" if engine.is_shared else ""
            gone = EngineGone(f"{error}{when}: run this again")
            self._writer.break_off(gone)
            raise gone from None
        except ContextOverflow:
            if self._load.options.load.n_ctx is not None or not self._may_repeat(engine):
                raise
            raise AnswerHereError(
                "the server's context is too small for this prompt: loading the model here"
            ) from None
        self._save_results()
        return last

    def _may_repeat(self, engine: Engine) -> bool:
        """Return whether nothing came of the question yet; calls are not carried out twice."""
        return engine.is_shared and not (self._writer.begun or self._turns.items)

    def _notify(self, *notes: str) -> None:
        for note in () if self._output.quiet else (*self._notices, *notes):
            notice(note)
        self._notices.clear()


def recorded(events: Iterator[Event], saved: "SavedConversation", model: str) -> Iterator[Event]:
    """Yield events; save the reply as it comes, so that it is there whatever ends this process."""
    recorder = None
    try:
        for event in events:
            if isinstance(event, Text | Finished) and recorder is None:
                recorder = saved.begin_reply(model)
            if isinstance(event, Text) and recorder is not None:
                recorder.feed(event.text, thinking=event.thinking)
            if isinstance(event, Finished) and recorder is not None:
                saved.finish_reply(recorder, event.reply, event.reply.message)
                recorder = None
            yield event
    finally:
        if recorder is not None:
            recorder.cut()


class AnswerWriter:
    """Writes an answer as its events come; before it, how much of the prompt is read.

    Args:
        output: what is printed.
        calls: whether the model may call functions.
        bound: whether the answer must follow a grammar.

    Attributes:
        begun: whether there was any text.
    """

    def __init__(self, output: OutputFlags, *, calls: bool = False, bound: bool = False) -> None:
        self._output, self._calls = output, calls
        self._stream = AnswerStream(
            silent=output.is_silent,
            show_thinking=output.show_thinking,
            is_prose=not (bound or output.raw),
        )
        self._answer, self._thoughts, self._written = "", "", 0
        self.begun = False

    def write(self, events: Iterator[Event]) -> Reply:
        """Write all of a reply, and return it."""
        self._answer, self._thoughts, self._written = "", "", 0
        with ReadingLine(enabled=not self._output.quiet) as line:
            for event in unmasked(events) if self._output.can_ask else events:
                line.take(event)
                if isinstance(event, Finished):
                    self._end(event.reply)
                    return event.reply
                if isinstance(event, Text):
                    self.begun = True
                    self._take(event)
        raise AssertionError("a stream of events ends with Finished")

    def _end(self, reply: Reply) -> None:
        rest = self._answer[self._written :].strip()
        if not reply.calls:
            self._write(len(self._answer))
        elif rest and not self._output.quiet:
            click.echo(printable(rest, "\n"), err=True)
        self._stream.end()

    def _take(self, event: Text) -> None:
        """Write a text, except what may be a call: that is no part of the answer."""
        if event.thinking:
            self._thoughts += event.text
            self._stream.write(event)
            return
        self._answer += event.text
        end = len(self._answer)
        if self._calls:
            from localspec.chat.calling import words_end  # noqa: PLC0415 - most call nothing

            end = words_end(self._answer)
        self._write(end)

    def _write(self, end: int) -> None:
        if end > self._written:
            self._stream.write(Text(self._answer[self._written : end]))
            self._written = end

    def break_off(self, error: LocalspecError) -> None:
        """End the answer early; with --json or --code, print as much of it as there is."""
        if not self.begun:
            return
        self._write(len(self._answer))
        self._stream.end()
        if self._output.json_:
            print_json(cut_short_json(self._answer, self._thoughts, error), indent=None)
        elif self._output.code and self._answer:
            print_code(self._answer, quiet=self._output.quiet)


def unmasked(events: Iterator[Event]) -> Iterator[Event]:
    """Yield events; ask about every masked text, and put those that the user wants to see back in."""
    waiting: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, Withheld) and not event.in_call:
            waiting.append((event.mask, event.text if _wants_to_see(event.rule) else event.mask))
        elif isinstance(event, Text):
            text, rest = "", event.text
            for mask, visible in waiting:
                before, _, rest = rest.partition(mask)
                text += before + visible
            waiting.clear()
            yield Text(text + rest, event.thinking)
        else:
            yield event


def _wants_to_see(rule: str) -> bool:
    """Ask whether to show a masked text; the question does not show it."""
    sys.stdout.flush()
    try:
        answer = typed_answer(f"\nlocalspec: masked in the answer: {rule}. Show it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}


def _report(
    outcome: RunOutcome, request: Request, output: OutputFlags, workload: str | None
) -> int:
    """Print JSON or code, citations and figures; return the exit code."""
    reply, messages = outcome.reply, request.messages
    bound = request.options.answer_grammar is not None
    if output.json_:
        # Its patterns take a while to be compiled, which only JSON has to wait for.
        from localspec.launch.observe import workload_of  # noqa: PLC0415

        kind = workload or workload_of(request.question, reply.text)
        cited = cited_json(reply.text, messages)
        print_json(outcome.as_json(kind, cited, bound=bound), indent=None)
    if output.code:
        print_code(reply.text, quiet=output.quiet)
    if not (output.quiet or output.json_):
        notice(*map(printable, cited_lines(reply.text, messages)))
        if reply.note:
            hidden = reply.only_thoughts and not output.show_thinking
            more = "; --show-thinking prints them" if hidden else ""
            notice(printable(f"{reply.note}{more}"))
        notice(outcome.line())
    cut_off = (bound or output.code) and not is_complete(reply, bound=bound)
    if cut_off and not output.quiet:
        notice(incomplete_line(reply, bound=bound))
    sys.stdout.flush()
    return CUT_OFF if cut_off else 0
