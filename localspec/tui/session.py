"""Session: one user, one engine, one conversation at a time. The screens and the lines drive it; nothing is drawn here."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from localspec.chat.events import Event, Finished, Started, Text
from localspec.chat.request import Request
from localspec.decoding.gain import Gain
from localspec.engine.protocol import EngineDied, Notice
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import ContextOverflow, EngineGone, LocalspecError, UsageError
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.attachments import read_prediction
from localspec.session.compaction import LEAST_SHARE, NEARLY_FULL, is_request, options_for
from localspec.session.conversation import SavedConversation, StoredMessage, Unsaved
from localspec.session.documents import Docs
from localspec.tui.exchange import Exchange, ReplySaver
from localspec.tui.models import LoadQueue, Models
from localspec.tui.questions import Questions
from localspec.tui.settings import AUTO, ChatSettings, ConversationSettings
from localspec.tui.tray import Tray

if TYPE_CHECKING:
    from localspec.calls import Tool
    from localspec.session.approval import CallQuestion, CallRunner

Happened = Union[Event, StoredMessage, "CallQuestion"]
"""What `Session.answer` yields: an event of an answer, a call that needs approval, the result of a call."""
_ELSEWHERE = "this conversation has grown elsewhere: your question starts a new branch"
_GONE_ON = "another window has gone on with this answer, which is shown as it is now: /continue goes on with that"
_SAVED_AGAIN = "the history is saved again, including everything said meanwhile"
_DEAD = "/restart starts it again; a smaller /model or context (/set ctx) needs less memory"
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
        docs: the index that questions are answered from, unless a conversation has its own.
        gate: what is masked in answers, see `Request`.
        prediction: the file that answers will be like, as it is when each begins; None without one.

    Attributes:
        notify: prints what the user should know, as long as its second argument returns a true value.
        note: prints how models were set up.
        models: what is loaded, and being loaded.
        tray: the pictures and sounds that are no files.
        loads: has something else loaded.
        questions: makes messages of what the user types.
        settings: how to answer.
        exchange: the last request for an answer, running or done; None before the first.
        gains: what drafting gained in each answer by the model that is loaded, as far as that was measured.
        waiting: questions to send as soon as nothing is under way, in order.
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
        prediction: str | None = None,
    ) -> None:
        self.engine, self.talk, self.folder = engine, talk, folder
        engine.watch = self._watch
        self.notify: Callable[[str, Callable[[], object] | None], None] = lambda *_: None
        self.note: Callable[[str], None] = lambda _text: None
        self.models = Models(engine, load, self.count)
        self.loads = LoadQueue(engine, self.models, self._spawn, self._suit)
        self._docs = docs or Docs()
        self.settings = ConversationSettings(
            *(options, engine, self.models, talk, self._resize, self._docs.name)
        )
        self.tray = Tray(engine, folder, lambda: talk.media_names)
        self.work = work
        self.questions = Questions(
            *(engine, self.models, talk, self.tray, lambda: self.docs, folder),
            lambda text: self.note(text),  # noqa: PLW0108 - which is another one later
        )
        self._saver = ReplySaver(talk)
        self.exchange: Exchange | None = None
        self.gains: list[Gain] = []
        self.waiting: list[str] = []
        # By questions that were asked instead: the message that was last.
        self._before_edit: dict[int, int] = {}
        self._gate, self._own, self._prediction = gate, own, prediction
        self._answers = False
        self._set_aside: int | None = None
        self._left: Exchange | None = None
        self._counted = 0
        self._counting: Sequence[Message] = ()
        self._resumed = ""
        self._resumed_ctx: int | None = None
        self._advised = False
        self._noted = set[str]()
        self._trouble: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._fault: BaseException | None = None
        self._died_s = -_REVIVED_AGAIN_S

    # What there is.

    @property
    def growing(self) -> bool:
        """Whether an answer is under way."""
        return self.exchange is not None and not self.exchange.done

    @property
    def busy(self) -> bool:
        """Whether an answer or its calls are under way."""
        return self.growing or self._answers

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
    def docs(self) -> Docs:
        """What questions are answered from now."""
        return replace(self._docs, name=self.settings.current.docs)

    @property
    def latest(self) -> Exchange | None:
        """The last request for an answer; None when other models were loaded since, of which its figures say nothing."""
        exchange = self.exchange
        if exchange is not None and exchange.model not in {"", self.models.name}:
            return None
        return exchange

    @property
    def measured(self) -> Exchange | None:
        """The last request for an answer that has figures, though it was taken back or left; None before the first."""
        exchange = self.exchange
        has_figures = exchange is not None and (exchange.rounds or exchange.finished)
        return exchange if has_figures else self._left

    @property
    def has_answers(self) -> bool:
        """Whether the branch that is shown has answers, be they of an earlier run."""
        return any(each.message.role == "assistant" for each in self.talk.messages)

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
        before, self._trouble = self._trouble, self.talk.history.lasting_trouble
        if self._trouble != before:
            yield self._trouble or _SAVED_AGAIN

    # The engine.

    def start(self) -> None:
        """Load, on the event loop that runs: the models of the conversation that was resumed, or the usual ones."""
        self._loop = asyncio.get_running_loop()
        self.engine.follow(self._loop)
        self._spawn(self._save_regularly())
        if self._resumed:
            self.loads.load_again(self._resumed, self._resumed_ctx)
        else:
            self.loads.load(self.models.named(""))

    def load(self, name: str) -> None:
        """Load a pair, or else a target, in place of what is loaded."""
        self.require_rest()
        self.loads.load(self.models.named(name))

    def close(self) -> Unsaved | None:
        """End the engine; return what could not be saved of what was said."""
        if self.work is not None:
            self.work.close()
        self._saver.cut()
        self.engine.close()
        return self.talk.history.close()

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.work is not None and self.work.stop():
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
            self._saver.tick()
            self.talk.history.retry()
            if self.tray.uncounted and self.models.ready is not None:
                self._spawn(self.tray.count())

    def _suit(self, resized: bool) -> None:
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
            self.settings.suit(ChatSettings(self._own(models.name)))
        if models.replaced:
            self.notify("; ".join([models.replaced, *ready.notes]), None)
            return
        if ready.notes:
            self.note("; ".join(ready.notes))
        if resized:
            n_ctx = models.usual.load.n_ctx
            self.settings.current = replace(self.settings.current, n_ctx=n_ctx)
            self.settings.save()

    def _resize(self, n_ctx: int | None) -> None:
        self.require_rest()
        before = self.models.loaded or self.models.named("")
        self.loads.load(self.models.sized(n_ctx), before, resized=True)

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
            self.loads.load(loaded)

    # Answers.

    def ask(self, text: str) -> list[str]:
        """Send a question, with files that it mentions and passages that fit it; return what the user should know of it.

        Raises:
            UsageError: a file cannot be read, the model takes none such, an answer is under way, or the engine is dead.
            LocalspecError: an index cannot be read.
        """
        self._begin_question()
        news = [_ELSEWHERE] if self.talk.is_open_elsewhere else []
        changed = self.settings.changed
        question, unmatched = self.questions.new(text)
        self._request(self.talk.say(question, changed))
        return news + unmatched

    def ask_instead(self, number: int, text: str, *, keeps: bool = False) -> list[str]:
        """Send something else in place of the `number`-th question, in a branch; return what `ask` does.

        Pictures and sounds of the question stay as they are: all where it `keeps` them, else but for those that it
        mentioned and the text does not. Those of which the file is missing do not go with it.
        """
        self._begin_question()
        question, unmatched = self.questions.instead(number, text, keeps=keeps)
        before = self.talk.messages[-1].id
        asked = self.talk.say_instead(number, question)
        self._before_edit[asked] = before
        self._request(asked)
        return unmatched

    def regenerate(self, seed: int | None = None) -> None:
        """Answer the last question again, in a branch."""
        self._begin_question()
        question = self.talk.question().id
        self.questions.require_taken(self.talk.turns(question))
        self._request(question, seed)

    def go_on(self) -> None:
        """Let the last answer go on."""
        self._require_engine()
        if self.talk.is_answered_elsewhere():
            raise UsageError(_GONE_ON)
        self._request(self.talk.answer().id)

    def ask_again(self) -> bool:
        """Send again what was refused; return whether something was."""
        exchange = self.exchange
        if exchange is None or not isinstance(exchange.failure, ContextOverflow):
            return False
        last = self.talk.messages[-1:]
        if not last or (last[0].id != exchange.parent and not self.is_unanswered):
            return False
        self._require_engine()
        self._request(last[0].id)
        return True

    @property
    def is_unanswered(self) -> bool:
        """Whether the last message is a question of the user's."""
        last = self.talk.messages[-1:]
        return bool(last) and last[0].message.role == "user" and not is_request(last[0])

    def start_over(self) -> list[str]:
        """Begin another conversation, with the question that found no room; return what `ask` does."""
        question = self.undo() if self.is_unanswered else ""
        self.new()
        return self.ask(question) if question else []

    def compact(self) -> None:
        """Have the conversation summarised; from then on the summary stands in its place in what is sent.

        A question without an answer, such as one that was refused for want of room, is sent again behind it.

        Raises:
            UsageError: there is nothing to summarise, or the engine is dead.
        """
        self._begin_question()
        last = self.talk.messages[-1:]
        media = [part for each in last for part in each.message.media]
        question = self.talk.say_compaction(self._n_ctx)
        self._set_aside = None if question is None else last[0].id
        if question is not None:
            self.waiting.insert(0, self.tray.take_back(question, media))
        self._request(self.talk.messages[-1].id)

    async def has_room_for_summary(self) -> bool:
        """Whether a summary of the last turns, at least, would find room; also where that cannot be counted."""
        if not self.talk.can_be_summarised:
            return False
        options = options_for(self.settings.current.options, self._n_ctx)
        with suppress(LocalspecError):
            turns = self.talk.least_to_summarise(self._n_ctx)
            least = await self.engine.count(turns, (), options)
            return least <= self._n_ctx - self._n_ctx // LEAST_SHARE or not self._n_ctx
        return True

    def _take_back_summary(self) -> None:
        """Show the conversation as it was before a summary that found no room, with the question that was to follow it."""
        if is_request(request := self.talk.messages[-1]):
            aside, self._set_aside = self._set_aside, None
            if aside is not None and self.waiting:
                self.waiting.pop(0)
            self.talk.go_back(request.parent if aside is None else aside)

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
            # What is asked behind `/set ctx N` is not for the models before.
            await self.loads.reach_last()
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
                if isinstance(error, ContextOverflow):
                    await self._find_room(exchange, error)
                exchange.failure = lost or error
                self._saver.cut()
                if isinstance(error, ContextOverflow):
                    self.count()  # what is there without the question

    async def _find_room(self, exchange: Exchange, error: ContextOverflow) -> None:
        """Take note of what would find room where a request found none; a summary that found none is taken back."""
        if exchange.summarises:
            self._take_back_summary()
            exchange.can_summarise = False
        else:
            exchange.can_summarise = await self.has_room_for_summary()
        asked = None if exchange.summarises else exchange.parent
        asked = self.talk.messages[-1].id if self.is_unanswered else asked
        if error.sizes is not None and asked is not None:
            turns = self.talk.turns(asked)
            exchange.alone_tokens = await self._count_alone(exchange.request, turns)

    def _save(self, event: Event, exchange: Exchange) -> None:
        """Save what came of an answer; its calls are carried out."""
        ready = self.models.ready
        target = "" if ready is None else ready.target
        match event:
            case Started():
                if self.engine.can.local_files:  # else its models are loaded by nobody here
                    self.talk.set_pair(self.models.name)
                exchange.model = self.models.name
            case Text():
                self._saver.feed(event, exchange, target)
            case Finished():
                self._saver.finish(event, exchange, target)
                self._finish(event, exchange)

    def _finish(self, done: Finished, exchange: Exchange) -> None:
        again = done.reply.only_thoughts
        if done.reply.note and (again or done.reply.note not in self._noted):
            self._noted.add(done.reply.note)
            self.note(done.reply.note)
        if done.reply.gain is not None:
            self.gains.append(done.reply.gain)
        if self.work is not None and done.message.calls and not exchange.cancelled:
            self.work.start(done.message.calls)
        if self.talk.ends_with_summary:
            self.count()
        added = exchange.answer or exchange.thoughts or exchange.calls
        if exchange.continued is not None and not added and not exchange.cancelled:
            self.note("the model adds nothing: the answer was complete")

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

    @property
    def what_runs(self) -> str:
        """What others wait for, where something is under way."""
        return "the model still loads" if self.models.loading else "still answering"

    def require_rest(self) -> None:
        """Raise StillAnswering while an answer is under way."""
        if self.busy:
            raise StillAnswering(f"{self.what_runs}: Esc stops")

    def is_reported(self, failure: LocalspecError) -> bool:
        """Return whether the user knows of a failure: the engine's own end is reported as it happens, and a server's is not."""
        gone = isinstance(failure, EngineGone) and self.engine.can.local_files
        return gone or failure is self.models.trouble

    def _require_engine(self) -> None:
        self.require_rest()
        if self.models.dead:
            raise UsageError("the model is not running: /restart starts it again")

    def _begin_question(self) -> None:
        self._require_engine()
        if self.work is not None:
            self.work.begin()

    @property
    def _n_ctx(self) -> int:
        """Tokens of the context; 0 before there is one, and of a server that does not say."""
        ready = self.models.ready
        return 0 if ready is None else ready.n_ctx

    def _request(self, parent: int, seed: int | None = None) -> None:
        """Request an answer to the message `parent`, or more of it if it is an answer."""
        last, settings = self._message(parent), self.settings.current
        summarises = any(is_request(e) for e in self.talk.messages if e.id in {parent, last.parent})
        summarises &= last.message.role == "assistant" or is_request(last)
        turns, options = self.talk.turns(parent, summarises=summarises), settings.options
        if seed is not None:
            options = replace(options, seed=seed)
        work, drops = self.work, self.talk.drop_oldest
        if summarises:
            drops = True  # a summary of what fits is worth more than none
            stops = self.engine.can.stop_loops
            work, options = None, options_for(options, self._n_ctx, stop_loops=stops)
        request = self._request_of(
            turns,
            options,
            drop_oldest=drops,
            least_questions=2 if summarises else 1,
            draft=None if self.settings.draft == AUTO else self.settings.draft,
            given=settings.given,
            conversation=self.talk.number,
            **({} if work is None else {"tools": work.tools, "call_policy": work.policy}),
        )
        continued = last if last.message.role == "assistant" else None
        self._left = self.measured
        self.exchange = Exchange(request, parent, continued, summarises=summarises)
        self._saver.reset()

    def _request_of(self, turns: Sequence[Message], options: ReplyOptions, **more: Any) -> Request:
        prediction = read_prediction(self._prediction, self.folder)
        return Request(0, tuple(turns), options, gate=self._gate, prediction=prediction, **more)

    def _message(self, number: int) -> StoredMessage:
        return next(each for each in self.talk.messages if each.id == number)

    # Conversations.

    def new(self) -> None:
        """Begin another conversation."""
        self.require_rest()
        self.forget()

    def resume(
        self,
        conversation: int,
        *,
        own_models: bool = True,
        own_ctx: bool = True,
        own_docs: bool = True,
    ) -> None:
        """Take up a conversation of the history before the engine is started.

        Args:
            conversation: its id.
            own_models: whether `start` loads the models of the conversation, and not the usual ones.
            own_ctx: whether it does so with the context of the conversation.
            own_docs: whether questions are answered from the index of the conversation, if it has one.
        """
        self._take_up(conversation)
        if not own_docs:
            self.settings.answer_from(self._docs.name)
        self._resumed = self.talk.pair if own_models else ""
        self._resumed_ctx = self.settings.current.n_ctx if own_ctx else None

    def open(self, conversation: int) -> None:
        """Take up a conversation of the history, with its settings and its models."""
        self.require_rest()
        self._take_up(conversation)
        n_ctx, name = self.settings.current.n_ctx, self.talk.pair or self.models.next_name
        other_size = n_ctx is not None and n_ctx != self.models.usual.load.n_ctx
        differs = name != self.models.next_name or other_size
        if name and self.engine.can.local_files and differs:
            if name != self.models.next_name:
                self.note(f"{name} answers here, as before; /model loads another")
            self.loads.load_again(name, n_ctx, fetch=False)
        else:
            self.count()

    def _take_up(self, conversation: int) -> None:
        self.forget()
        self.talk.open(conversation)
        stored = self.talk.history.conversation(conversation)
        self.settings.current = self.settings.usual.from_json(stored.settings)

    async def delete(self, conversation: int) -> None:
        """Delete a conversation of the history, in all its branches.

        Raises:
            StillAnswering: an answer in it is under way.
            HistoryError: it cannot be deleted.
        """
        if conversation == self.talk.conversation:
            self.require_rest()
        await asyncio.to_thread(self.talk.history.delete, conversation)
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
        """Take back the last question and its answer; return the question, with mentions of all its pictures and sounds.

        Where it was asked in place of another one, what stood there before is shown again.
        """
        self.require_rest()
        last = self.talk.question()
        text = self.tray.take_back(self.talk.take_back(), last.message.media)
        if (before := self._before_edit.pop(last.id, None)) is not None:
            self.talk.go_back(before)
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
        """Let go of the conversation, which is left or gone, and of its settings."""
        self.talk.new()
        self.settings.current = self.settings.usual
        self._forget_answers()
        self.count()
        self._advised = False

    def _forget_answers(self) -> None:
        self._left, self.exchange = self.measured, None
        self._saver.reset()
        self.talk.drop_oldest = False
        self.waiting.clear()
        if self.work is not None:
            self.work.forget()

    # The context.

    @property
    def context_tokens(self) -> int:
        """How many tokens of the context are in use, as far as is known."""
        latest, answer = self.latest, self._saver.message
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
        """Return, once when the context gets nearly full, how full it is; else nothing."""
        share = self.context_tokens / self._n_ctx if self._n_ctx else 0.0
        advised, self._advised = self._advised, share >= NEARLY_FULL
        if advised or not self._advised:
            return ""
        return f"the context is {share:.0%} full"

    def count(self) -> None:
        """Count the tokens of the branch that is shown, beside what else is done; counts under way are of no use any more."""
        self._counting = ()
        tools = () if self.work is None else self.work.tools
        with suppress(UsageError):  # a picture is missing, which the next question says
            self._counting = self.talk.turns_behind()
            if all(each.role == "system" for each in self._counting):
                self._counted = 0
            else:
                self._spawn(self._count(self._counting, tools))

    async def _count_alone(self, request: Request, turns: Sequence[Message]) -> int:
        """Return the tokens of some turns without what was said before their last question; 0 where that cannot be counted."""
        asked = max((at for at, each in enumerate(turns) if each.role == "user"), default=0)
        alone = [*(each for each in turns[:1] if each.role == "system"), *turns[asked:]]
        with suppress(LocalspecError):
            return await self.engine.count(alone, request.tools, request.options)
        return 0

    async def _count(self, turns: Sequence[Message], tools: "Sequence[Tool]") -> None:
        with suppress(LocalspecError):  # nothing is loaded
            tokens = await self.engine.count(turns, tools, self.settings.current.options)
            if turns is self._counting:
                self._counted = tokens
