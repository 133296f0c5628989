"""Asking: what is requested of the models in a conversation, and what comes back. No screen."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chat.events import Started
from localspec.decoding.round import StopReason
from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, Notice, ReplyDone, ReplyEvents
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.retrieval.retriever import Docs
from localspec.session.attachments import attached, unmatched
from localspec.session.compaction import is_request, options_for
from localspec.session.conversation import SavedConversation
from localspec.ui.answering import GrowingAnswer
from localspec.ui.engine_state import EngineState, Phase
from localspec.ui.exchange import Exchange
from localspec.ui.model_switch import ModelSwitch
from localspec.ui.race import Race, race_of
from localspec.ui.settings import AUTO, ChatSettings

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner


class StillAnswering(UsageError):
    """What was asked for has to wait until nothing is under way."""


class Asking:
    """Requests answers, one at a time.

    Args:
        engine: answers.
        talk: the conversation.
        state: what is known of the engine; takes every message before this does.
        models: likewise.
        settings: how to answer.
        folder: what paths in `@path` are relative to.
        work: carries out calls; None where the models may call nothing.
        docs: what questions are answered from.

    Attributes:
        answering: the answer that is under way.
        race: the last race.
        settings: how to answer.
        usual: how to answer in a new conversation.
        waiting: questions to ask as soon as nothing is under way, in order.
        results: how many calls have come to something, in all conversations.
        docs: what questions are answered from.
        drop_oldest: leave out the oldest turns where the context is full, instead of failing.
    """

    def __init__(
        self,
        engine: EngineClient,
        talk: SavedConversation,
        state: EngineState,
        models: ModelSwitch,
        settings: ChatSettings,
        folder: Path,
        work: "CallRunner | None" = None,
        docs: Docs | None = None,
    ) -> None:
        self.work = work
        self.docs = docs or Docs()
        self._engine, self._talk, self._state, self._models = engine, talk, state, models
        self.settings, self.usual, self._folder = settings, settings, folder
        self.answering = GrowingAnswer(talk)
        self.race: Race | None = None
        self.results = 0
        self.drop_oldest = False
        self.waiting: list[str] = []

    @property
    def exchange(self) -> Exchange | None:
        """The last request for an answer, running or done."""
        return self.answering.exchange

    @property
    def busy(self) -> bool:
        """Whether an answer, or a race, is under way."""
        return (
            self.answering.growing
            or (self.race is not None and not self.race.done)
            or (self.work is not None and self.work.busy)
        )

    def suit(self, usual: ChatSettings) -> None:
        """Answer as suits another model from now on, unless the user set something in this conversation."""
        if replace(self.settings, n_ctx=None) == self.usual:
            self.settings = replace(usual, n_ctx=self.settings.n_ctx)
        self.usual = usual

    def ask(self, text: str) -> None:
        """Ask; files that the text mentions go with it, and passages that fit it.

        Raises:
            UsageError: a file cannot be read, an answer is under way, or nobody would ever answer.
            LocalspecError: an index cannot be read.
        """
        self._require_engine()
        self._begin_rounds()
        chosen = "" if self.settings == self.usual else self.settings.as_json()
        said = self._with_files(text, self._talk.answered())
        self._request(self._talk.say(said, chosen))

    def ask_instead(self, number: int, text: str) -> None:
        """Ask something else in place of the `number`-th question, in a branch."""
        self._require_engine()
        self._begin_rounds()
        said = self._with_files(text, self._talk.before(number))
        self._request(self._talk.say_instead(number, said))

    def regenerate(self, seed: int | None = None) -> None:
        """Answer the last question again, in a branch."""
        self._require_engine()
        self._begin_rounds()
        self._request(self._talk.question().id, seed)

    def go_on(self) -> None:
        """Let the last answer go on."""
        self._require_engine()
        self._request(self._talk.answer().id)

    def leave_out_oldest(self) -> bool:
        """Leave out the oldest turns from now on, and ask again what was refused; return whether it was."""
        self.drop_oldest = True
        return self.ask_again()

    def ask_again(self) -> bool:
        """Ask again what was refused; return whether something was."""
        parent = self.answering.parent
        if self.exchange is None or self.exchange.failure is None or parent is None:
            return False
        self._require_engine()
        self._request(parent)
        return True

    def compact(self) -> None:
        """Have what was said summarised; from then on the summary stands in its place in what is sent.

        A question without an answer, such as one that was refused for want of room, is asked again behind it.

        Raises:
            UsageError: there is nothing to summarise, or nobody who would.
        """
        self._require_engine()
        self._begin_rounds()
        question = self._talk.say_compaction()
        if question is not None:
            self.waiting.insert(0, question)
        self._request(self._talk.messages[-1].id)

    def start_race(self, text: str = "") -> Race:
        """Answer with and without drafting; without a text, the last question of the conversation.

        A text is asked behind the conversation, of which nothing is evaluated again then, now or later.
        """
        self.require_rest()
        if self._state.phase is not Phase.READY:
            raise UsageError(f"the model is not ready ({self._state.line()}): wait for it")
        if text:
            before = self._talk.answered()
            turns = (*before, self._with_files(text, before))
        else:
            turns = self._talk.turns(self._talk.question().id)
        self.race = race_of(self._engine, turns, self.settings.options)
        return self.race

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.race is not None and not self.race.done:
            self.race.stop()
            return True
        if self.work is not None and self.work.stop():
            return True
        if self.exchange is not None and not self.exchange.done:
            self._engine.cancel(self.exchange.id)
            return True
        return False

    def take(self, message: Notice) -> None:
        """Take a message, and keep what it says."""
        if self.race is not None and self.race.take(message):
            return
        if self._is_refused_too_early(message) and self.answering.parent is not None:
            self._request(self.answering.parent)
            return
        model = "" if self._state.ready is None else self._state.ready.target
        if self.answering.take(message, model):
            if isinstance(message, ReplyEvents) and any(
                isinstance(event, Started) for event in message.events
            ):
                self._talk.set_pair(self._models.name)
                assert self.exchange is not None  # noqa: S101 - it took the message
                self.exchange.model = self._models.name
            if isinstance(message, ReplyDone):
                self._begin_calls(message)
        elif isinstance(message, EngineDied):
            self.break_off()

    def go_on_calling(self) -> None:
        """Keep the results of calls that have ended, and have them answered when all have."""
        work = self.work
        if work is None or not work.busy:
            return
        for each in work.take():
            if not isinstance(each, str):
                self._talk.add_result(each)
                self.results += 1
        if not work.busy and not work.stopped and self._state.phase is not Phase.DEAD:
            self._request(self._talk.messages[-1].id)

    def break_off(self) -> None:
        """Keep what there is of an answer that will not end by itself."""
        self.answering.break_off()
        self.race = None

    def forget(self) -> None:
        """Let go of all of it: the conversation was left."""
        self.answering.forget()
        self.race = None
        self.drop_oldest = False
        self.waiting.clear()
        if self.work is not None:
            self.work.forget()

    def require_rest(self) -> None:
        """Raise UsageError while an answer is under way."""
        if self.busy:
            raise StillAnswering("still answering: Esc stops")

    def _begin_rounds(self) -> None:
        if self.work is not None:
            self.work.begin()

    def _begin_calls(self, done: ReplyDone) -> None:
        """Carry out what an answer calls, unless it was stopped."""
        calls = done.message.calls
        if self.work is not None and calls and done.reply.stop_reason is not StopReason.CANCELLED:
            self.work.start(calls)

    def _is_refused_too_early(self, message: Notice) -> bool:
        """Return whether nothing was loaded to answer, while something else is being loaded now."""
        return (
            isinstance(message, Failed)
            and self.exchange is not None
            and message.id == self.exchange.id
            and self._models.under_way
        )

    def _request(self, parent: int, seed: int | None = None) -> None:
        """Ask for an answer to the message `parent`, or for more of it where it is an answer."""
        turns, options = self._talk.turns(parent), self.settings.options
        if seed is not None:
            options = replace(options, seed=seed)
        draft = None if self.settings.draft == AUTO else self.settings.draft
        work, ready = self.work, self._state.ready
        if any(each.id == parent and is_request(each) for each in self._talk.messages):
            work, options = None, options_for(options, 0 if ready is None else ready.n_ctx)
        number = self._engine.ask(
            turns,
            options,
            draft=draft,
            drop_oldest=self.drop_oldest,
            tools=() if work is None else work.tools,
            call_policy=None if work is None else work.policy,
            conversation=self._talk.number,
        )
        self.answering.begin(Exchange(number, turns), parent)

    def _require_engine(self) -> None:
        self.require_rest()
        if self._state.phase is Phase.DEAD:
            raise UsageError("the model is not running: /restart starts it again")

    def unmatched(self, text: str) -> list[str]:
        """Return what a question mentions where there is neither a file nor an index."""
        return unmatched(self.docs.parse_mention(text)[1], self._folder)

    def _with_files(self, text: str, before: Sequence[Message]) -> Message:
        docs, question = self.docs.parse_mention(text)
        files = attached(question, self._folder)
        return Message.user(text, [*files, *docs.documents(question, before)])
