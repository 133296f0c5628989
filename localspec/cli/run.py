"""`localspec run`: one prompt, one answer on stdout, everything else on stderr.

Imports nothing that loads models: if a server has them in memory already, its first token does not wait for that.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from localspec.chat.events import Event, Finished, Reply, Text, Withheld
from localspec.chat.request import Request
from localspec.cli import CUT_OFF, INTERRUPTED
from localspec.cli.interrupt import Interrupts
from localspec.cli.options import (
    SectionedCommand,
    Settings,
    complete_models,
    flags,
    gate_option,
    option_flags,
    own_option,
    switch,
    with_settings,
    workload_option,
)
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
    read_prompt,
    with_model,
)
from localspec.cli.tools import RepliesAndCalls, ToolFlags, typed_answer
from localspec.decoding.round import StopReason
from localspec.display import notice, printable
from localspec.engine.engine import (
    Engine,
    EngineGone,
    FirstRequest,
    Interrupted,
    entered,
    iterate,
)
from localspec.engine.protocol import Downloading, Load, Notice
from localspec.errors import ContextOverflow, LocalspecError, UsageError
from localspec.launch.engine import open_engine
from localspec.launch.names import name_of, with_names
from localspec.messages import Message
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.session.conversation import SavedConversation, StoredConversation


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """Flags that say what is printed.

    Args:
        raw: Complete the prompt as plain text, without a chat template.
        json_: Print one JSON object with the text and figures.
        code: Print only the answer's code, when it is complete.
        quiet: Print only errors on stderr.
        show_thinking: Also print a reasoning model's thoughts.
    """

    raw: bool = switch()
    json_: bool = switch()
    code: bool = switch()
    quiet: bool = switch("-q", "--quiet")
    show_thinking: bool = switch()

    @property
    def is_silent(self) -> bool:
        """Whether nothing is printed before the answer is complete."""
        return self.json_ or self.code

    @property
    def is_for_a_person(self) -> bool:
        """Whether a person reads the answer, who may go on from it."""
        return _at_terminal() and not (self.raw or self.json_ or self.quiet)

    @property
    def can_ask(self) -> bool:
        """Whether a person reads the answer as it comes, and can answer questions about it."""
        return _at_terminal() and sys.stderr.isatty() and not (self.is_silent or self.quiet)


@click.command(cls=SectionedCommand)
@click.argument("words", metavar="[MODEL] [PROMPT]", nargs=-1, shell_complete=complete_models)
@option_flags("models", "exact", "sampling", "structure", "context", "device")
@flags(
    system=SystemFlags, question=QuestionFlags, docs=DocsFlags, tools=ToolFlags, output=OutputFlags
)
@continue_option
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep the answer in the history, for --continue. Default: only on a terminal.",
)
@gate_option
@own_option
@workload_option
@with_settings
def run(
    words: tuple[str, ...],
    settings: Settings,
    system: SystemFlags,
    question: QuestionFlags,
    docs: DocsFlags,
    tools: ToolFlags,
    output: OutputFlags,
    go_on: str | None,
    keep: bool | None,
    workload: str | None,
) -> int:
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
    _check(system, question, docs, tools, output, keep=bool(keep), continues=go_on is not None)
    conversation = None
    if go_on is not None:
        conversation, words = conversation_and_words(go_on, words)
    model, prompt = model_and_prompt(words, chosen=settings.named_model is not None)
    settings = settings.with_model(model)
    prompt = question.templated(prompt)
    if prompt is None and _is_chat(question, output):
        from localspec.cli.conversing import start_chat  # noqa: PLC0415 - history and screens of it

        number = None if conversation is None else str(conversation.id)
        return start_chat(settings, system, docs, tools, go_on=number)
    saved = _saved_conversation(conversation, output, keep)
    if saved is not None and settings.named_model is None:
        settings = settings.with_model(saved.pair)
    text = read_prompt(prompt)
    before = () if saved is None else tuple(each.message for each in saved.messages)
    message = None
    if not output.raw:
        message = question.message(text, docs, prompt or "", before, quiet=output.quiet)
    settings, default = with_model(settings, quiet=output.quiet or output.json_)
    launch, system_text = settings.launch, None if output.raw else system.prompt(settings.system)
    turns = RepliesAndCalls(tools.runner(docs, offline=launch.offline), quiet=output.quiet)
    if saved is not None and conversation is None:
        saved.system = system_text
    request = Request(
        0,
        _messages(message, saved, system_text),
        settings.reply,
        raw=None if message else text,
        ephemeral=saved is None and not tools.wanted,
        gate=settings.gate,
    )
    load = Load(launch, keep=tools.wanted, workload=workload)
    posed = RunQuestion(request, saved, message)
    outcome = RunAnswer(load, posed, turns, output, default, own=settings.own).outcome()
    if outcome is None:
        return INTERRUPTED
    if saved is not None:
        _save(saved, outcome, name_of(with_names(launch)))
    code = _report(outcome, text, request, output, workload)
    cancelled = turns.stopped or outcome.reply.stop_reason is StopReason.CANCELLED
    return INTERRUPTED if cancelled else code


def _messages(
    message: Message | None, saved: "SavedConversation | None", system: str | None
) -> tuple[Message, ...]:
    """Return the conversation up to a question; nothing if the prompt goes to the model as it is."""
    if message is None:
        return ()
    if saved is not None:
        return saved.turns_with(message)
    return (message,) if system is None else (Message.system(system), message)


def _check(
    system: SystemFlags,
    question: QuestionFlags,
    docs: DocsFlags,
    tools: ToolFlags,
    output: OutputFlags,
    *,
    keep: bool,
    continues: bool,
) -> None:
    """Raise UsageError if flags cannot be combined."""
    if output.code and (output.json_ or output.show_thinking):
        raise UsageError("--code prints nothing else: remove --json and --show-thinking")
    if continues and system.is_given:
        raise UsageError(
            "-c (--continue) keeps the conversation's own system prompt: remove --system"
        )
    if not output.raw:
        return
    if continues or keep or question.files:
        raise UsageError(
            "--raw takes only a prompt: remove -c (--continue), --keep and -f (--file)"
        )
    for name, is_given, lack in (
        ("--system", system.is_given, "system prompt"),
        ("--docs", docs.docs, "place for passages"),
        ("--tools", tools.wanted, "form for calls"),
    ):
        if is_given:
            raise UsageError(f"--raw and {name} cannot be combined: raw text has no {lack}")


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _is_chat(question: QuestionFlags, output: OutputFlags) -> bool:
    """Return whether a person at a terminal gave no prompt, and nothing that only an answer has."""
    return (
        output.is_for_a_person
        and not (output.code or output.show_thinking)
        and not (question.files or question.template)
    )


def _saved_conversation(
    conversation: "StoredConversation | None", output: OutputFlags, keep: bool | None
) -> "SavedConversation | None":
    """Return the conversation of the history that the question belongs to, and print which one goes on; None without a history."""
    if not (conversation or (output.is_for_a_person if keep is None else keep)):
        return None
    from localspec.session.conversation import History, SavedConversation  # noqa: PLC0415 - a feature that can be taken away

    saved = SavedConversation(History(data_dir() / "history"))
    if conversation is not None:
        saved.open(conversation.id)
        if not (output.quiet or output.json_):
            notice(saved.continuing)
    return saved


def _save(saved: "SavedConversation", outcome: RunOutcome, pair: str) -> None:
    """Save replies and the results of their calls, and what was loaded for them."""
    saved.set_pair(pair)
    for each in outcome.replies:
        if isinstance(each, Reply):
            saved.add_reply(each, outcome.target)
        else:
            saved.add_result(each)
    saved.history.close()


class RunQuestion:
    """The question of `run`, and the conversation that it belongs to.

    Args:
        request: asks it.
        saved: the conversation of the history; None if nothing is saved.
        message: the question; None if the prompt goes to the model as it is.
    """

    def __init__(
        self, request: Request, saved: "SavedConversation | None", message: Message | None
    ) -> None:
        self._request, self._saved, self._message = request, saved, message
        self._is_saved = False

    @property
    def text(self) -> str:
        """All that a model reads of it, by which a context is sized."""
        return self._request.raw or "".join(each.text for each in self._request.messages)

    def to_request(self, *, save: bool = True) -> Request:
        """Return the request; unless `save` is false, the question is in the history from now on."""
        if self._saved is None or self._message is None or not save:
            return self._request
        if not self._is_saved:
            self._saved.say(self._message)
            self._is_saved = True
        return msgspec.structs.replace(self._request, conversation=self._saved.number)


class AnswerHereError(LocalspecError):
    """A server did not answer, for this reason, and nothing came of it yet."""


class RunAnswer:
    """Has a question answered by a server that has the model in memory, or else here.

    Args:
        load: what answers.
        question: makes the request.
        turns: carries out calls.
        output: what is printed.
        default: a line that says which model is taken, since none was chosen; may be empty.
        own: ask no server.
    """

    def __init__(
        self,
        load: Load,
        question: RunQuestion,
        turns: RepliesAndCalls,
        output: OutputFlags,
        default: str = "",
        *,
        own: bool = False,
    ) -> None:
        self._load, self._question = load, question
        self._turns, self._output, self._own = turns, output, own
        self._notices = [default] if default else []
        self._writer = AnswerWriter(output, calls=load.keep)

    def outcome(self) -> RunOutcome | None:
        """Return the last reply; None if loading was interrupted."""
        try:
            return self._answer(own=self._own)
        except AnswerHereError as reason:
            self._notify(str(reason))
            return self._answer(own=True)

    def _answer(self, *, own: bool) -> RunOutcome | None:
        interrupts, line = Interrupts(), ProgressLine(enabled=not self._output.quiet)
        first = FirstRequest(self._question.text, partial(self._question.to_request, save=False))

        def progress(moment: Notice) -> None:
            if isinstance(moment, Downloading):
                self._notify()  # which model it is that is being downloaded
            line.show(moment)

        opening = open_engine(
            self._load, progress, interrupts, own=own, first=first, notify=self._notify
        )
        with ExitStack() as stack:
            try:
                with line:
                    engine = stack.enter_context(entered(opening))
            except Interrupted:
                return None
            ready = engine.ready
            self._notify(*ready.notes)
            reply = self._reply(engine, interrupts)
            return RunOutcome(
                reply,
                ready.target,
                ready.draft_model,
                ready.load_s,
                engine.no_drafting,
                self._turns.items,
            )

    def _reply(self, engine: Engine, interrupts: Interrupts) -> Reply:
        """Return the last reply.

        Raises:
            AnswerHereError: a server cannot answer, and this process may.
        """

        def answer(request: Request) -> Reply:
            return self._writer.write(iterate(engine.stream(request)))

        try:
            return self._turns.last_reply(
                self._question.to_request(), answer, lambda: interrupts.is_set
            )
        except EngineGone as error:
            if self._may_repeat(engine):
                raise AnswerHereError(f"{error}: loading the model here") from None
            when = ": ask again when it is back"
            if engine.is_shared:
                when = ", in the middle of the answer: ask again"
            gone = EngineGone(f"{error}{when}")
            self._writer.break_off(gone)
            raise gone from None
        except ContextOverflow:
            if self._load.options.load.n_ctx is not None or not self._may_repeat(engine):
                raise
            raise AnswerHereError(
                "the server's context is too small for this prompt: loading the model here"
            ) from None

    def _may_repeat(self, engine: Engine) -> bool:
        """Return whether a server did nothing yet; calls are not carried out twice."""
        return engine.is_shared and not (self._writer.begun or self._turns.items)

    def _notify(self, *notes: str) -> None:
        for note in () if self._output.quiet else (*self._notices, *notes):
            notice(note)
        self._notices.clear()


class AnswerWriter:
    """Writes an answer as its events come, and before it how much of the prompt is read.

    Args:
        output: what is printed.
        calls: whether the model may call functions.

    Attributes:
        begun: whether there was any text.
    """

    def __init__(self, output: OutputFlags, *, calls: bool = False) -> None:
        self._output, self._calls = output, calls
        self._stream = AnswerStream(silent=output.is_silent, show_thinking=output.show_thinking)
        self._texts: list[Text] = []
        self._answer, self._written = "", 0
        self.begun = False

    def write(self, events: Iterator[Event]) -> Reply:
        """Write all of a reply, and return it."""
        self._texts.clear()  # of the reply before this one, whose calls were carried out
        self._answer, self._written = "", 0
        with ReadingLine(enabled=not self._output.quiet) as line:
            for event in revealed(events) if self._output.can_ask else events:
                line.take(event)
                if isinstance(event, Finished):
                    self._end(event.reply)
                    return event.reply
                if isinstance(event, Text):
                    self.begun = True
                    self._texts.append(event)
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
        """Write a text, but for what may be a call: that is none of the answer."""
        if event.thinking or not self._calls:
            self._stream.write(event)
            return
        from localspec.chat.calling import words_end  # noqa: PLC0415 - most call nothing

        self._answer += event.text
        self._write(words_end(self._answer))

    def _write(self, end: int) -> None:
        if end > self._written:
            self._stream.write(Text(self._answer[self._written : end]))
            self._written = end

    def break_off(self, error: LocalspecError) -> None:
        """End the answer early; one that was to be printed in the end is printed as far as it came."""
        if not self.begun:
            return
        self._write(len(self._answer))
        self._stream.end()
        text, thinking = (
            "".join(each.text for each in self._texts if each.thinking is of_thoughts)
            for of_thoughts in (False, True)
        )
        if self._output.json_:
            print_json(cut_short_json(text, thinking, error), indent=None)
        elif self._output.code and text:
            print_code(text, quiet=self._output.quiet)


def revealed(events: Iterator[Event]) -> Iterator[Event]:
    """Yield events; in their texts, what a rule masked stands unmasked if the user wants to see it."""
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
    """Ask whether something may be seen; the question does not show it."""
    sys.stdout.flush()
    try:
        answer = typed_answer(f"\nlocalspec: the answer has here: {rule}. Show it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}


def _report(
    outcome: RunOutcome, text: str, request: Request, output: OutputFlags, workload: str | None
) -> int:
    """Print the figures, and what there is to know of the answer; return the exit code."""
    reply, messages = outcome.reply, request.messages
    bound = request.options.answer_grammar is not None
    if output.json_:
        print_json(
            outcome.as_json(
                workload or _workload(text, reply.text),
                cited_json(reply.text, messages),
                bound=bound,
            ),
            indent=None,
        )
    if output.code:
        print_code(reply.text, quiet=output.quiet)
    if not (output.quiet or output.json_):
        for line in cited_lines(reply.text, messages):
            notice(printable(line))
        notice(outcome.line())
    cut_off = (bound or output.code) and not is_complete(reply, bound=bound)
    if cut_off and not output.quiet:
        notice(incomplete_line(reply, bound=bound))
    sys.stdout.flush()
    return CUT_OFF if cut_off else 0


def _workload(prompt: str, answer: str) -> str:
    """Return what kind of text it is."""
    # Its patterns take a while to be compiled, which only JSON has to wait for.
    from localspec.launch.observe import workload_of  # noqa: PLC0415

    return workload_of(prompt, answer)
