"""Session: one user, one engine, one conversation at a time. The screens and the lines drive it; nothing is drawn here."""

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Union

from localspec.chat.events import Event, Finished, Started, Text
from localspec.chat.request import Request
from localspec.decoding.gain import Gain
from localspec.engine.engine import EngineGone, RemoteEngine
from localspec.engine.protocol import EngineDied, Notice
from localspec.errors import ContextOverflow, LocalspecError, UsageError
from localspec.media import why_not_taken
from localspec.messages import MediaPart, Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.attachments import (
    attached,
    mentioned,
    mentions,
    pasted_notes,
    question_with,
    unmatched,
    with_mentions,
)
from localspec.session.compaction import NEARLY_FULL, is_request, options_for
from localspec.session.conversation import (
    ReplyRecorder,
    SavedConversation,
    StoredMessage,
    Unsaved,
)
from localspec.session.documents import Docs
from localspec.tui.exchange import Exchange
from localspec.tui.models import Models
from localspec.tui.race import Race
from localspec.tui.settings import AUTO, CONTEXT, DRAFT, SETTINGS, SYSTEM, ChatSettings
from localspec.tui.tray import Tray

if TYPE_CHECKING:
    from localspec.calls import Tool
    from localspec.session.approval import CallQuestion, CallRunner

Happened = Union[Event, StoredMessage, "CallQuestion"]
"""What `Session.answer` yields: an event of an answer, a call that needs approval, the result of a call."""
_ELSEWHERE = "this conversation has grown elsewhere: your question starts a new branch"
_SAVED_AGAIN = "the history is saved again, including everything said meanwhile"
_DEAD = "/restart starts it again; a smaller model (F8) or context (/set ctx) needs less memory"
_TICK_S, _LOOK_S = 0.2, 0.05
_REVIVED_AGAIN_S = 60.0
"""An engine that dies again so soon is left to the user."""


class StillAnswering(UsageError):
    """What was requested has to wait until nothing is under way."""


class Session:
    """A conversation, and the models that answer in it.

    Args:
        engine: where models are loaded and answer; started by `start`.
        talk: the conversation.
        load: the models that are loaded when nothing else is requested.
        options: how to answer.
        folder: what paths in `@path` are relative to.
        own: returns how to answer with a model, by its name; None always takes `options`.
        work: carries out calls; None when the models may call nothing.
        docs: the index that questions are answered from.
        gate: what is masked in answers, see `Request`.

    Attributes:
        notify: prints what the user should know, as long as its second argument returns a true value.
        note: prints how models were set up.
        models: what is loaded, and being loaded.
        tray: the pictures and sounds that are no files.
        settings: how to answer.
        usual: how to answer in a new conversation.
        exchange: the last request for an answer, running or done; None before the first.
        gains: what drafting gained in each answer by the model that is loaded, as far as that was measured.
        race: the last race.
        waiting: questions to send as soon as nothing is under way, in order.
        pasted: mentions of files that came with a paste and are text, by the question that they stand in.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        talk: SavedConversation,
        load: LaunchOptions,
        options: ReplyOptions,
        folder: Path,
        own: Callable[[str], ReplyOptions] | None = None,
        work: "CallRunner | None" = None,
        docs: Docs | None = None,
        gate: str = "",
    ) -> None:
        self.engine, self.talk, self.folder = engine, talk, folder
        engine.watch = self._watch
        self.notify: Callable[[str, Callable[[], object] | None], None] = lambda *_: None
        self.note: Callable[[str], None] = lambda _text: None
        self.models = Models(engine, load, self._restore_state)
        self.settings = self.usual = ChatSettings(options)
        self.tray = Tray(engine, folder, lambda: talk.media_names)
        self.work, self.docs = work, docs or Docs()
        self.exchange: Exchange | None = None
        self.gains: list[Gain] = []
        self.race: Race | None = None
        self.waiting: list[str] = []
        self.pasted: dict[str, frozenset[str]] = {}
        self._gate, self._own = gate, own
        self._recorder: ReplyRecorder | None = None
        self._answers = False
        self._answered: int | None = None
        self._counted = 0
        self._resumed = ""
        self._resumed_ctx: int | None = None
        self._advised = False
        self._noted = set[str]()
        self._trouble: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._fault: BaseException | None = None
        self._loads: list[asyncio.Task[None]] = []
        self._died_s = -_REVIVED_AGAIN_S

    # What there is.

    @property
    def growing(self) -> bool:
        """Whether an answer is under way."""
        return self.exchange is not None and not self.exchange.done

    @property
    def busy(self) -> bool:
        """Whether an answer, its calls, or a race is under way."""
        return self.growing or self._answers or self._races

    @property
    def _races(self) -> bool:
        return self.race is not None and not self.race.done

    @property
    def stopped(self) -> bool:
        """Whether the user stopped the last answer, or its calls; to be asked when it has ended."""
        exchange = self.exchange
        if exchange is None or exchange.finished is None:
            return False
        return exchange.cancelled or (
            self.work is not None and bool(exchange.finished.message.calls)
        )

    @property
    def latest(self) -> Exchange | None:
        """The last request for an answer; None when other models were loaded since, of which its figures say nothing."""
        exchange = self.exchange
        if exchange is not None and exchange.model not in {"", self.models.name}:
            return None
        return exchange

    @property
    def farewell(self) -> str:
        """What is saved of the conversation and how to go on with it, on one line; empty if there is nothing."""
        talk = self.talk
        if talk.conversation is None or not talk.messages:
            return ""
        if talk.history.trouble:
            return f"not saved: {talk.history.trouble}"
        return f"continue with: localspec chat --continue {talk.conversation}"

    def news(self) -> Iterator[str]:
        """Yield what the user should know since the last call: of tools, and of a disk that fills up or has room again.

        A fault of what runs beside answers is raised here.
        """
        if self._fault is not None:
            raise self._fault
        if self.work is not None:
            yield from self.work.news()
        if line := self.talk.history.taken_in_line:
            self.talk.history.taken_in = 0
            yield line
        before, self._trouble = self._trouble, self.talk.history.trouble
        if self._trouble != before:
            yield self._trouble or _SAVED_AGAIN

    # The engine.

    def start(self) -> None:
        """Load, on the event loop that runs: the models of the conversation that was resumed, or the usual ones."""
        self._loop = asyncio.get_running_loop()
        self.engine.follow(self._loop)
        self._spawn(self._save_regularly())
        if self._resumed:
            self._load_again(self._resumed, self._resumed_ctx)
        else:
            self._load(self.models.named(""))

    def load(self, name: str) -> None:
        """Load a pair, or else a target, in place of what is loaded."""
        self.require_rest()
        self._load(self.models.named(name))

    async def loaded(self) -> None:
        """Wait until what was requested is loaded, or cannot be."""
        while self._loads:
            await asyncio.wait(self._loads)

    async def restart(self) -> None:
        """Start the engine again, with what was loaded last."""
        for each in self._loads:
            each.cancel()
        self.models.wanted.clear()
        self._load(self.models.loaded or self.models.named(""), restarts=True)

    def close(self) -> Unsaved | None:
        """Save what the models have evaluated, and end the engine; return what could not be saved of what was said."""
        self.save_state()
        if self.work is not None:
            self.work.close()
        self._break_off()
        self.engine.close()
        return self.talk.history.close()

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.race is not None and self._races:
            self.race.stop()
        elif self.work is not None and self.work.stop():
            pass
        elif self.exchange is not None and self.exchange.number is not None and self.growing:
            self.engine.cancel(self.exchange.number)
        elif self.models.loading:
            self.engine.cancel()
        else:
            return False
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._loop is not None  # noqa: S101 - it was started
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = fault

    async def _save_regularly(self) -> None:
        """Save what came in though nothing more comes, and what the disk had no room for."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._recorder is not None:
                self._recorder.tick()
            self.talk.history.retry()
            if self.tray.uncounted and self.models.ready is not None:
                self._spawn(self.tray.count())

    def _load(
        self,
        wanted: LaunchOptions,
        other: LaunchOptions | None = None,
        *,
        fetch: bool = True,
        restarts: bool = False,
        resized: bool = False,
    ) -> None:
        """Load behind what is being loaded; see `Models.load`, and where it `restarts` in a new process."""

        async def load(before: list[asyncio.Task[None]]) -> None:
            try:
                if before:
                    await asyncio.wait(before)
                if restarts:
                    await self.engine.end(0)
                await self.models.load(wanted, other, fetch=fetch)
            finally:
                if task in self._loads:
                    self._loads.remove(task)
                    self.models.wanted.pop(0)
            self._suit(resized=resized)

        self.models.wanted.append(wanted)
        before = [] if restarts else [*self._loads]
        if restarts:
            self._loads.clear()
        task = self._spawn(load(before))
        self._loads.append(task)

    def _load_again(self, name: str, n_ctx: int | None, *, fetch: bool = True) -> None:
        """Load the models of a conversation; if that fails and nothing is loaded, the usual ones."""
        other = self.models.named("")
        if n_ctx is not None:
            self.models.sized(n_ctx)
        self._load(self.models.named(name), other, fetch=fetch)

    def _suit(self, *, resized: bool) -> None:
        """Answer as suits what is loaded now, and report how that went."""
        models = self.models
        ready = models.ready
        if ready is None:
            if models.trouble is not None:
                advice = f"; {_DEAD}" if models.dead else ""
                self.notify(f"{models.trouble}{advice}", lambda: models.ready is None)
            return
        self.gains.clear()
        self.tray.recount()
        if self._own is not None:
            self.suit(ChatSettings(self._own(models.name)))
        if models.replaced:
            self.notify("; ".join([models.replaced, *ready.notes]), None)
            return
        self._set_pair()
        if ready.notes:
            self.note("; ".join(ready.notes))
        if resized:
            self.settings = replace(self.settings, n_ctx=models.usual.load.n_ctx)
            self._save_settings()

    def _watch(self, notice: Notice) -> None:
        """Take note of how far a load is; start an engine again that died, unless it did so a moment ago."""
        self.models.watch(notice)
        if not isinstance(notice, EngineDied) or self.models.loading:
            return
        now_s, loaded = time.monotonic(), self.models.loaded
        revives = loaded is not None and now_s - self._died_s >= _REVIVED_AGAIN_S
        self._died_s = now_s
        self.models.lose(notice.reason)
        then = "restarting it" if revives else _DEAD
        self.notify(f"{notice.reason}; {then}", lambda: self.models.ready is None)
        if loaded is not None and revives:
            self._load(loaded)

    # Answers.

    def ask(self, text: str) -> list[str]:
        """Send a question, with files that it mentions and passages that fit it; return what the user should know of it.

        Raises:
            UsageError: a file cannot be read, the model takes none such, an answer is under way, or the engine is dead.
            LocalspecError: an index cannot be read.
        """
        self._begin_question()
        news = [_ELSEWHERE] if self.talk.is_open_elsewhere else []
        is_usual = self.settings == self.usual and not self.settings.given
        chosen = "" if is_usual else self.settings.as_json()
        pasted = self.pasted.get(text, frozenset())
        text = self._with_mentions(text)
        question = self._with_files(text, self.talk.answered(), pasted)
        self._require_senses(self.talk.turns_with(question))
        self._request(self.talk.say(question, chosen))
        return news + self._unmatched(text, pasted)

    def _with_mentions(self, text: str) -> str:
        """Return a question in which paths of pictures and sounds are mentions, where the model takes such."""
        ready = self.models.ready
        takes = ready is not None and (ready.sees or ready.hears) and "\n" not in text
        return with_mentions(text, self.folder) if takes else text

    def _unmatched(
        self, text: str, pasted: Collection[str], own: Sequence[MediaPart] = ()
    ) -> list[str]:
        held = self.tray.held | {each.name: each for each in own}
        names = unmatched(self._index_and_question(text, pasted)[1], self.folder, held)
        notes = [f"no file matches {name}: sent as text" for name in names]
        return notes + pasted_notes(pasted, self.folder)

    def _index_and_question(self, text: str, pasted: Collection[str]) -> tuple[Docs, str]:
        """Return what a question is answered from, and the question; a pasted name of an index is text."""
        named = next(mentions(text), None)
        return (self.docs, text) if named in pasted else self.docs.parse_mention(text)

    def ask_instead(self, number: int, text: str, *, keeps: bool = False) -> list[str]:
        """Send something else in place of the `number`-th question, in a branch; return what `ask` does.

        Pictures and sounds of the question stay as they are: all where it `keeps` them, else but for those that it
        mentioned and the text does not. Those of which the file is missing do not go with it.
        """
        self._begin_question()
        pasted = self.pasted.get(text, frozenset())
        text, before = self._with_mentions(text), self.talk.before(number)
        own, staying = self._media_of(number, keeps=keeps)
        question = self._with_files(text, before, pasted, own, staying)
        self._require_senses([*before, question])
        self._request(self.talk.say_instead(number, question))
        return self._unmatched(text, pasted, [*own.values()])

    def attached_media(
        self, text: str, number: int | None = None, pasted: Collection[str] = ()
    ) -> list[MediaPart]:
        """Return the pictures and sounds that would go with a text, in place of the `number`-th question or as a new one."""
        own, staying = self._media_of(number)
        others = self.tray.mentioned(self._with_mentions(text), own, pasted)
        return [*dict.fromkeys([*staying, *others])]

    def _media_of(
        self, number: int | None, *, keeps: bool = False
    ) -> tuple[dict[str, MediaPart], list[MediaPart]]:
        """Return the pictures and sounds of a question by name, and those that stay if its text changes."""
        if number is None:
            return {}, []
        message = self.talk.question(number).message
        own = {each.name: each for each in message.media if each.data}
        named = [] if keeps else mentioned(message.typed, own)
        return own, [each for each in message.media if each.data and each not in named]

    def _require_senses(self, turns: Sequence[Message]) -> None:
        self.require_senses({part.kind for each in turns for part in each.media})

    def require_senses(self, kinds: Collection[Literal["image", "audio"]]) -> None:
        """Raise UsageError if the model that is loaded does not take such pictures or sounds; a server knows that itself."""
        ready = self.models.ready
        if ready is None or not kinds or self.models.usual.server is not None:
            return
        from localspec.models.mmproj import model_that_takes  # noqa: PLC0415 - few have pictures

        for kind in sorted(kinds):
            other = model_that_takes(kind)
            if other == ready.target:  # its encoders are not here, or not wanted
                without = self.models.usual.reads_text_only
                other += " without --mmproj off" if without else f" after `localspec pull {other}`"
            why_not = why_not_taken(
                kind, ready.target, sees=ready.sees, hears=ready.hears, other=other
            )
            if why_not is not None:
                raise UsageError(why_not)

    def regenerate(self, seed: int | None = None) -> None:
        """Answer the last question again, in a branch."""
        self._begin_question()
        question = self.talk.question().id
        self._require_senses(self.talk.turns(question))
        self._request(question, seed)

    def go_on(self) -> None:
        """Let the last answer go on."""
        self._require_engine()
        self._request(self.talk.answer().id)

    def ask_again(self) -> bool:
        """Send again what was refused; return whether something was."""
        exchange = self.exchange
        if exchange is None or not isinstance(exchange.failure, ContextOverflow):
            return False
        assert exchange.parent is not None  # noqa: S101 - it is of the conversation
        self._require_engine()
        self._request(exchange.parent)
        return True

    def compact(self) -> None:
        """Have the conversation summarised; from then on the summary stands in its place in what is sent.

        A question without an answer, such as one that was refused for want of room, is sent again behind it.

        Raises:
            UsageError: there is nothing to summarise, or the engine is dead.
        """
        self._begin_question()
        media = [part for each in self.talk.messages[-1:] for part in each.message.media]
        question = self.talk.say_compaction()
        if question is not None:
            self.waiting.insert(0, self.tray.take_back(question, media))
        self._request(self.talk.messages[-1].id)

    def start_race(self, text: str = "") -> Race:
        """Answer with and without drafting; without a text, the last question of the conversation.

        A text is answered behind the conversation, of which nothing is evaluated again then, now or later.
        """
        self.require_rest()
        self.require_local("a race needs drafting that can be switched off")
        if self.models.loading or self.models.ready is None:
            raise UsageError(f"the model is not ready ({self.models.line})")
        if text:
            before = self.talk.answered()
            turns = (*before, self._with_files(text, before))
        else:
            turns = self.talk.turns(self.talk.question().id)
        self.race = Race(self.engine, self._request_of(turns, self.settings.options))
        return self.race

    async def answer(self) -> AsyncGenerator[Happened]:
        """Answer the question: yield what happens, saved as it comes, and so of its calls and of the answers to those.

        What goes wrong is the exchange's `failure`.
        """
        self._answers = True
        try:
            while self.growing and self.exchange is not None:
                async with aclosing(self._stream(self.exchange)) as events:
                    async for event in events:
                        yield event
                async with aclosing(self._carry_out()) as outcomes:
                    async for each in outcomes:
                        yield each
        finally:
            self._answers = False

    async def _stream(self, exchange: Exchange) -> AsyncGenerator[Event]:
        """Yield one answer as it comes, and save it."""
        while not exchange.done:
            loads = self.models.loads
            try:
                async with aclosing(self.engine.stream(exchange.request, exchange.begin)) as events:
                    async for event in events:
                        exchange.take(event)
                        self._save(event, exchange)
                        yield event
            except LocalspecError as error:
                # What loads fails at the same time, and other models are loaded then, which may be quick.
                await asyncio.sleep(_LOOK_S)
                others = self.models.ready is not None and self.models.loads != loads
                if exchange.started is None and (self.models.loading or others):
                    continue
                lost = isinstance(error, EngineGone) and self.models.trouble
                exchange.failure = lost or error
                self._break_off()

    async def _carry_out(self) -> AsyncGenerator[Happened]:
        """Yield the calls of an answer that need approval, and their results; then request the next answer."""
        work, question = self.work, None
        if work is None or not work.busy:
            return
        while work.busy:
            await asyncio.sleep(_LOOK_S)
            before, question = question, work.question
            if question is not None and question is not before:
                yield question
            for each in work.take():
                if not isinstance(each, str):
                    self.talk.add_result(each)
                    yield self.talk.messages[-1]
        if not work.stopped:
            self._request(self.talk.messages[-1].id)

    def _break_off(self) -> None:
        """Keep what there is of an answer that will not end by itself."""
        if self._recorder is not None:
            self._recorder.cut()
            self.talk.show_branch(self._recorder.message)
            self._recorder = None

    def require_rest(self) -> None:
        """Raise StillAnswering while an answer is under way."""
        if self.busy:
            raise StillAnswering("still answering: Esc stops")

    def require_local(self, why: str) -> None:
        """Raise UsageError where a server answers, and no model of this machine."""
        if self.models.usual.server is not None:
            raise UsageError(f"{why}, and the server {self.models.usual.server} answers")

    def is_reported(self, failure: LocalspecError) -> bool:
        """Return whether the user knows of a failure: the engine's own end is reported as it happens, and a server's is not."""
        gone = isinstance(failure, EngineGone) and self.models.usual.server is None
        return gone or failure is self.models.trouble

    def _require_engine(self) -> None:
        self.require_rest()
        if self.models.dead:
            raise UsageError("the model is not running: /restart starts it again")

    def _begin_question(self) -> None:
        self._require_engine()
        if self.work is not None:
            self.work.begin()

    def _with_files(
        self,
        text: str,
        before: Sequence[Message],
        pasted: Collection[str] = (),
        own: Mapping[str, MediaPart] = MappingProxyType({}),
        staying: Sequence[MediaPart] = (),
    ) -> Message:
        docs, question = self._index_and_question(text, pasted)
        files = attached(question, self.folder, {**self.tray.held, **own}, pasted)
        passages = docs.documents(question, before)
        if missed := docs.missed_line(passages):
            self.note(missed)
        return question_with(text, [*staying, *files, *passages])

    def _request(self, parent: int, seed: int | None = None) -> None:
        """Request an answer to the message `parent`, or more of it if it is an answer."""
        turns, options = self.talk.turns(parent), self.settings.options
        if seed is not None:
            options = replace(options, seed=seed)
        work, ready = self.work, self.models.ready
        last = self._message(parent)
        if is_request(last):
            n_ctx, local = 0 if ready is None else ready.n_ctx, self.models.usual.server is None
            work, options = None, options_for(options, n_ctx, stop_loops=local)
        request = self._request_of(
            turns,
            options,
            drop_oldest=self.talk.drop_oldest,
            draft=None if self._draft == AUTO else self._draft,
            given=self.settings.given,
            conversation=self.talk.number,
            **({} if work is None else {"tools": work.tools, "call_policy": work.policy}),
        )
        continued = last if last.message.role == "assistant" else None
        self.exchange = Exchange(request, parent, continued)
        self._recorder = self._answered = None

    def _request_of(self, turns: Sequence[Message], options: ReplyOptions, **more: Any) -> Request:
        return Request(0, tuple(turns), options, gate=self._gate, **more)

    def _message(self, number: int) -> StoredMessage:
        return next(each for each in self.talk.messages if each.id == number)

    def _save(self, event: Event, exchange: Exchange) -> None:
        """Save what came of an answer; one without a token leaves nothing behind. Its calls are carried out."""
        match event:
            case Started():
                self._set_pair()
                exchange.model = self.models.name
            case Text():
                self._begun(exchange).feed(event.text, thinking=event.thinking)
            case Finished():
                self._finish(event, exchange)
            case _:
                pass

    def _set_pair(self) -> None:
        if self.models.usual.server is None:  # whose models are loaded by nobody here
            self.talk.set_pair(self.models.name)

    def _begun(self, exchange: Exchange) -> ReplyRecorder:
        """Return what saves the answer, begun with its first text."""
        if self._recorder is None:
            history, ready = self.talk.history, self.models.ready
            assert self.talk.conversation is not None  # noqa: S101 - it holds the question
            if exchange.continued is not None:
                self._recorder = history.resume_reply(exchange.continued.id)
            else:
                model = "" if ready is None else ready.target
                self._recorder = history.begin_reply(self.talk.conversation, exchange.parent, model)
            self._answered = self._recorder.message
        return self._recorder

    def _finish(self, done: Finished, exchange: Exchange) -> None:
        turn = done.message
        if turn.text or turn.thinking or turn.calls or self._recorder is not None:
            recorder = self._begun(exchange)
            self.talk.finish_reply(recorder, done.reply, turn, done.dropped_turns, done.no_drafting)
            self._recorder = None
        again = done.reply.only_thoughts
        if done.reply.note and (again or done.reply.note not in self._noted):
            self._noted.add(done.reply.note)
            self.note(done.reply.note)
        if done.reply.gain is not None:
            self.gains.append(done.reply.gain)
        if self.work is not None and turn.calls and not exchange.cancelled:
            self.work.start(turn.calls)
        if self.talk.ends_with_summary:
            self.count()

    # Conversations.

    def new(self) -> None:
        """Begin another conversation."""
        self.require_rest()
        self.save_state()
        self.forget()
        self.settings = self.usual

    def resume(self, conversation: int, *, own_models: bool = True, own_ctx: bool = True) -> None:
        """Take up a conversation of the history before the engine is started.

        Args:
            conversation: its id.
            own_models: whether `start` loads the models of the conversation, and not the usual ones.
            own_ctx: whether it does so with the context of the conversation.
        """
        self._take_up(conversation)
        self._resumed = self.talk.pair if own_models else ""
        self._resumed_ctx = self.settings.n_ctx if own_ctx else None

    def open(self, conversation: int) -> None:
        """Take up a conversation of the history, with its settings and its models."""
        self.require_rest()
        self.save_state()
        self._take_up(conversation)
        n_ctx, name = self.settings.n_ctx, self.talk.pair or self.models.next_name
        other_size = n_ctx is not None and n_ctx != self.models.usual.load.n_ctx
        remote = self.models.usual.server is not None
        if name and not remote and (name != self.models.next_name or other_size):
            self._load_again(name, n_ctx, fetch=False)
        else:
            self._restore_state()

    def _take_up(self, conversation: int) -> None:
        self.forget()
        self.talk.open(conversation)
        stored = self.talk.history.conversation(conversation)
        self.settings = self.settings.from_json(stored.settings)

    def delete(self, conversation: int) -> None:
        """Delete a conversation of the history, in all its branches."""
        self.talk.history.delete(conversation)
        if conversation == self.talk.conversation:
            self.forget()

    def export(self, conversation: int, argument: str = "", leaf: int | None = None) -> str:
        """Write a conversation to a file of the folder; return a line about it."""
        from localspec.chat.gated import gate_of  # noqa: PLC0415 - not at the start
        from localspec.session.export import export_line, write_export  # noqa: PLC0415 - as above

        history, mask = self.talk.history, gate_of("usual").cleaned
        path, masked = write_export(history, conversation, argument, self.folder, mask, leaf)
        return export_line(path, masked, conversation)

    def undo(self) -> str:
        """Take back the last question and its answer; return the question, with mentions of all its pictures and sounds."""
        self.require_rest()
        media = self.talk.question().message.media
        text = self.tray.take_back(self.talk.take_back(), media)
        self._forget_answers()
        self.count()
        return text

    def take_back_refused(self) -> str:
        """Take back a question whose pictures or sounds the model refused, as one that was loaded behind it may; return its text, empty where that is not so."""
        exchange, last = self.exchange, self.talk.messages[-1:]
        if exchange is None or not isinstance(exchange.failure, UsageError):
            return ""
        is_refused = exchange.started is None and any(each.message.media for each in last)
        return self.undo() if is_refused else ""

    def forget(self) -> None:
        """Let go of the conversation, which is left or gone."""
        self.talk.new()
        self._forget_answers()
        self._counted, self._advised = 0, False

    def _forget_answers(self) -> None:
        self.exchange = self.race = self._recorder = None
        self.talk.drop_oldest = False
        self.waiting.clear()
        if self.work is not None:
            self.work.forget()

    # Settings.

    def set(self, name: str, value: str) -> None:
        """Change how answers are made, in this conversation.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == SYSTEM:
            self.talk.set_system(None if value in {"", "-"} else value)
            return
        if name == CONTEXT:
            self._resize(value)
            return
        settings = self.settings.changed(name, value)
        if name == DRAFT and (settings.draft != AUTO or self.models.usual.server is None):
            self._require_drafter(settings.draft)
        self.settings = settings
        self._save_settings()

    def setting(self, name: str) -> str:
        """Return how answers are made, as it is typed."""
        if name == DRAFT and self._draft == AUTO:
            return self.models.usual.draft
        if name == CONTEXT:
            n_ctx, ready = self.models.usual.load.n_ctx, self.models.ready
            return str(n_ctx or (ready is not None and ready.n_ctx) or "off")
        return self.talk.system or "-" if name == SYSTEM else self.settings.text_of(name)

    def setting_lines(self) -> list[str]:
        """Return how answers are made, a line for each of `SETTINGS`."""
        width = max(map(len, SETTINGS))
        return [f"{name:<{width}}  {self.setting(name)}" for name in SETTINGS]

    def suit(self, usual: ChatSettings) -> None:
        """Answer as suits another model from now on, unless the user changed a setting of this conversation."""
        if replace(self.settings, n_ctx=None) == self.usual:
            given, n_ctx = self.settings.given, self.settings.n_ctx
            self.settings = replace(usual, n_ctx=n_ctx, given=given)
        self.usual = usual

    @property
    def _draft(self) -> str:
        """How is drafted in this conversation; a server knows that itself."""
        return self.settings.draft if self.models.usual.server is None else AUTO

    def _require_drafter(self, mode: str) -> None:
        """Raise UsageError if nothing may draft, or a mode needs a draft model and none is loaded."""
        from localspec.decoding.drafters.register import uses_draft_model  # noqa: PLC0415 - not at the start

        self.require_local("drafting is set here")
        ready = self.models.ready
        if mode != "off" and self.models.usual.draft == "off":
            raise UsageError("the models were loaded with --draft off: leave that out to draft")
        if uses_draft_model(mode.partition(":")[0]) and ready and ready.draft_model is None:
            raise UsageError(
                "no draft model is loaded: start the chat with --draft model, or leave draft at auto"
            )

    def _save_settings(self) -> None:
        if self.talk.conversation is not None:
            self.talk.history.update(self.talk.conversation, settings=self.settings.as_json())

    def _resize(self, value: str) -> None:
        self.require_rest()
        if value not in {"", "-", "off"} and not value.isdecimal():
            raise UsageError(f"ctx is {value[:40]!r}: it takes a number of tokens, or off")
        before = self.models.loaded or self.models.named("")
        wanted = self.models.sized(int(value) if value.isdecimal() else None)
        self._load(wanted, before, resized=True)

    # The context.

    @property
    def context_tokens(self) -> int:
        """How many tokens of the context are in use, as far as is known."""
        latest, answer = self.latest, self._answered
        if latest is None or latest.failure is not None:
            return self._counted
        if self.busy:
            return latest.context_tokens
        # The answer is among the last messages, and this is asked for five times a second.
        is_here = answer is None or any(each.id == answer for each in reversed(self.talk.messages))
        if not is_here or self.talk.ends_with_summary:
            return self._counted
        return latest.context_tokens

    def advice(self) -> str:
        """Return, once when the context gets nearly full, what to do about it; else nothing."""
        ready = self.models.ready
        n_ctx = 0 if ready is None else ready.n_ctx  # 0 of a server that does not say
        share = self.context_tokens / n_ctx if n_ctx else 0.0
        advised, self._advised = self._advised, share >= NEARLY_FULL
        if advised or not self._advised:
            return ""
        return f"the context is {share:.0%} full: /compact has the model summarise it"

    def save_state(self) -> None:
        """Have the engine save what it evaluated for this conversation, unless it is still at it."""
        directory, models = self.talk.state_directory, self.models
        ready = models.ready is not None and not models.loading and not self.busy
        if directory is not None and self.talk.messages and ready:
            self.engine.save_state(str(directory))

    def _restore_state(self) -> None:
        """Have the engine put back what it evaluated for this conversation, if it fits.

        It waits its turn, behind a load and before the next request.
        """
        directory = self.talk.state_directory
        if directory is not None and directory.is_dir():
            self.engine.restore_state(str(directory))
        self.count()

    def count(self) -> None:
        """Count the tokens of the branch that is shown, beside what else is done."""
        if not self.talk.messages:
            self._counted = 0
        else:
            tools = () if self.work is None else self.work.tools
            with suppress(UsageError):  # a picture is missing, which the next question says
                self._spawn(self._count(self.talk.turns(self.talk.messages[-1].id), tools))

    async def _count(self, turns: Sequence[Message], tools: "Sequence[Tool]") -> None:
        with suppress(LocalspecError):  # nothing is loaded
            self._counted = await self.engine.count(turns, tools, self.settings.options)
