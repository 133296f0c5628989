"""Session: one user, one engine, one conversation at a time. The screens and the lines drive it.

Nothing here waits and nothing is drawn: `take` takes what the engine sends, `tick` does what time brings.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chat.events import Finished, Started, Text
from localspec.decoding.round import StopReason
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Counted,
    EngineDied,
    Failed,
    Notice,
    Ready,
    ReplyEvents,
)
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.attachments import attached, unmatched
from localspec.session.compaction import NEARLY_FULL, is_request, options_for
from localspec.session.conversation import ReplyRecorder, SavedConversation, StoredMessage
from localspec.session.documents import Docs
from localspec.tui.exchange import Exchange
from localspec.tui.models import Models, Phase
from localspec.tui.race import Race
from localspec.tui.settings import AUTO, CONTEXT, DRAFT, SETTINGS, SYSTEM, ChatSettings

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner

_ELSEWHERE = "also open in another window: your question starts a new branch"
_SAVED_AGAIN = "the history is saved again, including everything said meanwhile"
_TICK_S = 0.1


class StillAnswering(UsageError):
    """What was requested has to wait until nothing is under way."""


class Session:
    """A conversation, and the models that answer in it.

    Args:
        engine: started by `start`.
        talk: the conversation.
        load: the models that are loaded when nothing else is requested.
        options: how to answer.
        folder: what paths in `@path` are relative to.
        own: returns how to answer with a model, by its name; None always takes `options`.
        work: carries out calls; None when the models may call nothing.
        docs: the index that questions are answered from.

    Attributes:
        models: what is loaded, and being loaded.
        settings: how to answer.
        usual: how to answer in a new conversation.
        exchange: the last request for an answer, running or done; None before the first.
        race: the last race.
        waiting: questions to send as soon as nothing is under way, in order.
        results: how many calls have ended, in all conversations.
        drop_oldest: leave out the oldest turns when the context is full, instead of failing.
    """

    def __init__(
        self,
        engine: EngineClient,
        talk: SavedConversation,
        load: LaunchOptions,
        options: ReplyOptions,
        folder: Path,
        own: Callable[[str], ReplyOptions] | None = None,
        work: "CallRunner | None" = None,
        docs: Docs | None = None,
    ) -> None:
        self.engine, self.talk, self.folder = engine, talk, folder
        self.models = Models(engine, load)
        self.settings = self.usual = ChatSettings(options)
        self.work, self.docs = work, docs or Docs()
        self.exchange: Exchange | None = None
        self.race: Race | None = None
        self.waiting: list[str] = []
        self.results = 0
        self.drop_oldest = False
        self._own = own
        self._recorder: ReplyRecorder | None = None
        self._answered: int | None = None
        self._counted = 0
        self._resumed = ""
        self._resumed_ctx: int | None = None
        self._resizing = False
        self._advised = False
        self._trouble: str | None = None

    # What there is.

    @property
    def growing(self) -> bool:
        """Whether an answer is under way."""
        return self.exchange is not None and not self.exchange.done

    @property
    def busy(self) -> bool:
        """Whether an answer, its calls, or a race is under way."""
        return self.growing or self._races or (self.work is not None and self.work.busy)

    @property
    def _races(self) -> bool:
        return self.race is not None and not self.race.done

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
        """Yield what the user should know since the last call: of tools, and of a disk that fills up or has room again."""
        if self.work is not None:
            yield from self.work.news()
        before, self._trouble = self._trouble, self.talk.history.trouble
        if self._trouble != before:
            yield self._trouble or _SAVED_AGAIN

    # The engine.

    def start(self) -> None:
        """Start the engine, and load: the models of the conversation that was resumed, or the usual ones."""
        self.engine.start()
        if self._resumed:
            self.models.load_again(self._resumed, fetch=True, n_ctx=self._resumed_ctx)
        else:
            self.models.load_usual()
        self._restore_state()

    def load(self, name: str) -> None:
        """Load a pair, or else a target, in place of what is loaded."""
        self.require_rest()
        self.models.load(name)
        self._restore_state()

    def restart(self) -> None:
        """Start the engine again, with what was loaded last."""
        self.break_off()
        self.models.restart()
        self._restore_state()

    def close(self) -> None:
        """Save what the models have evaluated, and end the engine."""
        self.save_state()
        if self.work is not None:
            self.work.close()
        self.break_off()
        self.engine.close()
        self.talk.history.close()

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.race is not None and self._races:
            self.race.stop()
        elif self.work is not None and self.work.stop():
            pass
        elif self.exchange is not None and self.growing:
            self.engine.cancel(self.exchange.id)
        elif self.models.phase in {Phase.STARTING, Phase.LOADING}:
            self.engine.cancel()
        else:
            return False
        return True

    async def notices(self) -> AsyncGenerator[list[Notice]]:
        """Yield what the engine sends, as it comes and at least ten times a second, to be given to `take`, and then `tick`.

        While text streams, no more often: passes want every core.
        """
        while True:
            yield self.engine.collect()
            streams = self.exchange is not None and self.growing and self.exchange.happened
            await (asyncio.sleep(_TICK_S) if streams else self.engine.arrival(_TICK_S))

    def tick(self) -> None:
        """Save what came in if half a second went by, and go on with calls that ended."""
        self._go_on_calling()
        if self._recorder is not None:
            self._recorder.tick()
        self.talk.history.retry()

    def take(self, notice: Notice) -> None:
        """Take a notice of the engine: each goes to the request that it is about, or to the models."""
        match notice:
            case ReplyEvents() | Finished() | Failed(id=int()):
                if self.race is None or not self.race.take(notice):
                    self._take_reply(notice)
            case Counted():
                self._counted = notice.tokens
            case _:
                if self.models.take(notice):
                    self._restore_state()
                self._suit(notice)

    def _suit(self, notice: Notice) -> None:
        """Answer as suits what is loaded now; break off what an engine that died was at."""
        if isinstance(notice, Ready):
            if self._own is not None:
                self.suit(ChatSettings(self._own(self.models.name)))
            if not self.models.replaced:
                self.talk.set_pair(self.models.name)
        elif isinstance(notice, EngineDied):
            if self.race is not None:
                self.race.take(notice)
            self.break_off()
        if isinstance(notice, Ready | Failed) and self._resizing:
            self._resizing = False
            if not self.models.replaced:  # else it could not be had
                self.settings = replace(self.settings, n_ctx=self.models.usual.load.n_ctx)
                self._save_settings()

    # Answers.

    def ask(self, text: str) -> list[str]:
        """Send a question, with files that it mentions and passages that fit it; return what the user should know of it.

        Raises:
            UsageError: a file cannot be read, an answer is under way, or the engine is dead.
            LocalspecError: an index cannot be read.
        """
        self._begin_question()
        news = [_ELSEWHERE] if self.talk.is_open_elsewhere else []
        chosen = "" if self.settings == self.usual else self.settings.as_json()
        question = self._with_files(text, self.talk.answered())
        self._request(self.talk.say(question, chosen))
        return news + self._unmatched(text)

    def _unmatched(self, text: str) -> list[str]:
        names = unmatched(self.docs.parse_mention(text)[1], self.folder)
        return [f"no file matches {name}: sent as text" for name in names]

    def ask_instead(self, number: int, text: str) -> list[str]:
        """Send something else in place of the `number`-th question, in a branch; return what `ask` does."""
        self._begin_question()
        question = self._with_files(text, self.talk.before(number))
        self._request(self.talk.say_instead(number, question))
        return self._unmatched(text)

    def regenerate(self, seed: int | None = None) -> None:
        """Answer the last question again, in a branch."""
        self._begin_question()
        self._request(self.talk.question().id, seed)

    def go_on(self) -> None:
        """Let the last answer go on."""
        self._require_engine()
        self._request(self.talk.answer().id)

    def ask_again(self) -> bool:
        """Send again what was refused; return whether something was."""
        if self.exchange is None or self.exchange.failure is None or self.exchange.parent is None:
            return False
        self._require_engine()
        self._request(self.exchange.parent)
        return True

    def compact(self) -> None:
        """Have the conversation summarised; from then on the summary stands in its place in what is sent.

        A question without an answer, such as one that was refused for want of room, is sent again behind it.

        Raises:
            UsageError: there is nothing to summarise, or the engine is dead.
        """
        self._begin_question()
        question = self.talk.say_compaction()
        if question is not None:
            self.waiting.insert(0, question)
        self._request(self.talk.messages[-1].id)

    def start_race(self, text: str = "") -> Race:
        """Answer with and without drafting; without a text, the last question of the conversation.

        A text is answered behind the conversation, of which nothing is evaluated again then, now or later.
        """
        self.require_rest()
        if self.models.phase is not Phase.READY:
            raise UsageError(f"the model is not ready ({self.models.line}): wait for it")
        if text:
            before = self.talk.answered()
            turns = (*before, self._with_files(text, before))
        else:
            turns = self.talk.turns(self.talk.question().id)
        self.race = Race(self.engine, turns, self.settings.options)
        self.race.start()
        return self.race

    def break_off(self) -> None:
        """Keep what there is of an answer that will not end by itself."""
        if self._recorder is not None:
            self._recorder.cut()
            self.talk.show_branch(self._recorder.message)
            self._recorder = None
        if self.growing:
            self.exchange = None
        self.race = None

    def require_rest(self) -> None:
        """Raise StillAnswering while an answer is under way."""
        if self.busy:
            raise StillAnswering("still answering: Esc stops")

    def _require_engine(self) -> None:
        self.require_rest()
        if self.models.phase is Phase.DEAD:
            raise UsageError("the model is not running: /restart starts it again")

    def _begin_question(self) -> None:
        self._require_engine()
        if self.work is not None:
            self.work.begin()

    def _with_files(self, text: str, before: Sequence[Message]) -> Message:
        docs, question = self.docs.parse_mention(text)
        files = attached(question, self.folder)
        return Message.user(text, [*files, *docs.documents(question, before)])

    def _request(self, parent: int, seed: int | None = None) -> None:
        """Request an answer to the message `parent`, or more of it if it is an answer."""
        turns, options = self.talk.turns(parent), self.settings.options
        if seed is not None:
            options = replace(options, seed=seed)
        work, ready = self.work, self.models.ready
        last = self._message(parent)
        if is_request(last):
            work, options = None, options_for(options, 0 if ready is None else ready.n_ctx)
        number = self.engine.ask(
            turns,
            options,
            draft=None if self.settings.draft == AUTO else self.settings.draft,
            drop_oldest=self.drop_oldest,
            tools=() if work is None else work.tools,
            call_policy=None if work is None else work.policy,
            conversation=self.talk.number,
        )
        continued = last if last.message.role == "assistant" else None
        self.exchange = Exchange(number, turns, parent=parent, continued=continued)
        self._recorder = self._answered = None

    def _message(self, number: int) -> StoredMessage:
        return next(each for each in self.talk.messages if each.id == number)

    def _take_reply(self, notice: ReplyEvents | Finished | Failed) -> None:
        """Take a part of the answer that is under way, and save it."""
        exchange = self.exchange
        if exchange is None or exchange.id != notice.id:
            return
        if isinstance(notice, Failed) and self.models.under_way and exchange.parent is not None:
            self._request(exchange.parent)  # it was refused before the models were loaded
            return
        exchange.take(notice)
        if isinstance(notice, Finished):
            self._finish(notice, exchange)
        elif isinstance(notice, ReplyEvents):
            for event in notice.events:
                if isinstance(event, Text):  # an answer without any leaves no message behind
                    self._begun(exchange).feed(event.text, thinking=event.thinking)
                elif isinstance(event, Started):
                    self.talk.set_pair(self.models.name)
                    exchange.model = self.models.name

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
        """Save an answer as the engine finished it, and carry out its calls; one without a token leaves nothing behind."""
        turn = done.message
        if turn.text or turn.thinking or turn.calls or self._recorder is not None:
            recorder = self._begun(exchange)
            self.talk.finish_reply(recorder, done.reply, turn, done.dropped_turns)
            self._recorder = None
        stopped = done.reply.stop_reason is StopReason.CANCELLED
        if self.work is not None and turn.calls and not stopped:
            self.work.start(turn.calls)
        if self.talk.ends_with_summary:
            self.engine.ask_count(self.talk.turns(self.talk.messages[-1].id))

    def _go_on_calling(self) -> None:
        """Save the results of calls that have ended, and have them answered when all have."""
        work = self.work
        if work is None or not work.busy:
            return
        for each in work.take():
            if not isinstance(each, str):
                self.talk.add_result(each)
                self.results += 1
        if not work.busy and not work.stopped and self.models.phase is not Phase.DEAD:
            self._request(self.talk.messages[-1].id)

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
        if name and (name != self.models.next_name or other_size):
            self.models.load_again(name, fetch=False, n_ctx=n_ctx)
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
        """Take back the last question and its answer; return the question."""
        self.require_rest()
        text = self.talk.take_back()
        self._forget_answers()
        self.count()
        return text

    def forget(self) -> None:
        """Let go of the conversation, which is left or gone."""
        self.talk.new()
        self._forget_answers()
        self._counted, self._advised = 0, False

    def _forget_answers(self) -> None:
        self.exchange = self.race = self._recorder = None
        self.drop_oldest = False
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
        if name == DRAFT:
            self._require_drafter(settings.draft)
        self.settings = settings
        self._save_settings()

    def setting(self, name: str) -> str:
        """Return how answers are made, as it is typed."""
        if name == DRAFT and self.settings.draft == AUTO:
            return self.models.usual.draft
        if name == CONTEXT:
            n_ctx, ready = self.models.usual.load.n_ctx, self.models.ready
            return str(n_ctx or (ready.n_ctx if ready is not None else "off"))
        return self.talk.system or "-" if name == SYSTEM else self.settings.text_of(name)

    def setting_lines(self) -> list[str]:
        """Return how answers are made, a line for each of `SETTINGS`."""
        width = max(map(len, SETTINGS))
        return [f"{name:<{width}}  {self.setting(name)}" for name in SETTINGS]

    def suit(self, usual: ChatSettings) -> None:
        """Answer as suits another model from now on, unless the user changed a setting of this conversation."""
        if replace(self.settings, n_ctx=None) == self.usual:
            self.settings = replace(usual, n_ctx=self.settings.n_ctx)
        self.usual = usual

    def _require_drafter(self, mode: str) -> None:
        """Raise UsageError if nothing may draft, or a mode needs a draft model and none is loaded."""
        from localspec.decoding.drafters.register import uses_draft_model  # noqa: PLC0415 - not at the start

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
        self.models.resize(int(value) if value.isdecimal() else None)
        self._resizing = True
        self._restore_state()

    # The context.

    @property
    def context_tokens(self) -> int:
        """How many tokens of the context are in use, as far as is known."""
        latest, answer = self.latest, self._answered
        elsewhere = answer is not None and all(each.id != answer for each in self.talk.messages)
        if latest is None or (not self.busy and (elsewhere or self.talk.ends_with_summary)):
            return self._counted
        return latest.context_tokens

    def advice(self) -> str:
        """Return, once when the context gets nearly full, what to do about it; else nothing."""
        ready = self.models.ready
        share = 0.0 if ready is None else self.context_tokens / ready.n_ctx
        advised, self._advised = self._advised, share >= NEARLY_FULL
        if advised or not self._advised:
            return ""
        return f"the context is {share:.0%} full: /compact has the model summarise it"

    def save_state(self) -> None:
        """Have the engine save what it evaluated for this conversation, unless it is still at it."""
        directory = self.talk.state_directory
        ready = self.models.phase is Phase.READY and not self.busy
        if directory is not None and self.talk.messages and ready:
            self.engine.save_state(str(directory))

    def _restore_state(self) -> None:
        """Have the engine put back what it evaluated for this conversation, if it fits.

        It waits its turn, behind a load and before the next request.
        """
        if self.talk.conversation is None or self.models.phase in {Phase.IDLE, Phase.DEAD}:
            return
        directory = self.talk.state_directory
        if directory is not None and directory.is_dir():
            self.engine.restore_state(str(directory))
        self.count()

    def count(self) -> None:
        """Have the engine count the branch that is shown."""
        if not self.talk.messages:
            self._counted = 0
        elif self.models.phase not in {Phase.IDLE, Phase.DEAD}:
            tools = () if self.work is None else self.work.tools
            self.engine.ask_count(self.talk.turns(self.talk.messages[-1].id), tools)
