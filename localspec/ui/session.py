"""Session: one user, one engine, one conversation at a time. The screens and the plain form drive it.

Nothing here waits: `poll`, called ten times a second, takes what came in. No Textual.
"""

from dataclasses import replace
from pathlib import Path

from localspec.decoding.round import Round
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Counted,
    EngineDied,
    Notice,
)
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.ui import settings
from localspec.ui.answering import Answering
from localspec.ui.attach import attached
from localspec.ui.engine_state import EngineState, Phase
from localspec.ui.exchange import Exchange
from localspec.ui.models_state import ModelsState
from localspec.ui.race import Race, race_of
from localspec.ui.talk import Talk

_ROUNDS_KEPT = 2000


class Session:
    """What is being said, and to whom.

    Args:
        engine: started by `start`.
        talk: the conversation.
        load: the models to begin with.
        options: how to answer.
        folder: what paths in `@path` are relative to.

    Attributes:
        state: what is known of the engine.
        answering: the answer that is under way.
        kept: the models' state of the conversation.
        race: the last race.
        earlier_rounds: of answers before the last one, with the same models.
        drop_oldest: leave out the oldest turns where the context is full, instead of failing.
        draft: False answers without drafting.
    """

    def __init__(
        self,
        engine: EngineClient,
        talk: Talk,
        load: LaunchOptions,
        options: ReplyOptions,
        folder: Path,
    ) -> None:
        self.engine, self.talk, self.loaded, self.options = engine, talk, load, options
        self.folder = folder
        self.state = EngineState()
        self.answering = Answering(talk)
        self.kept = ModelsState(engine, talk, self.state)
        self.race: Race | None = None
        self.earlier_rounds: list[Round] = []
        self.drop_oldest = False
        self.draft = True
        self._counted = 0

    @property
    def exchange(self) -> Exchange | None:
        """The last request for an answer, running or done."""
        return self.answering.exchange

    @property
    def busy(self) -> bool:
        """Whether an answer, or a race, is under way."""
        return self.answering.growing or (self.race is not None and not self.race.done)

    @property
    def pair(self) -> str:
        """What answers, as it was asked for; empty for the usual pair."""
        return self.loaded.pair or self.loaded.target or ""

    def start(self) -> None:
        """Start the engine and load."""
        self.engine.start()
        self.load(self.loaded)

    def load(self, options: LaunchOptions) -> None:
        """Load models, in place of others if some are loaded."""
        self.require_rest()
        self.loaded = options
        self.state.expect_load()
        self.earlier_rounds = []
        self.engine.load(options)
        self.kept.restore()
        if self.talk.conversation is not None:
            self.talk.history.update(self.talk.conversation, pair=self.pair)

    def restart(self) -> None:
        """Start the engine again, with what was loaded last."""
        self._break_off()
        self.state.expect_load()
        self.engine.restart()
        self.kept.restore()

    def save_state(self) -> None:
        """Have the engine keep what it evaluated for this conversation, unless it is still at it."""
        if not self.busy:
            self.kept.save()

    def close(self) -> None:
        """Keep what the models have evaluated, and end the engine."""
        self.save_state()
        self._break_off()
        self.engine.close()
        self.talk.history.close()

    # Asking.

    def ask(self, text: str) -> None:
        """Ask; files that the text mentions go with it.

        Raises:
            UsageError: a file cannot be read, an answer is under way, or nobody would ever answer.
        """
        self._require_engine()
        said = Message.user(text, attached(text, self.folder))
        self._answer(self.talk.say(said, self.pair))

    def ask_instead(self, number: int, text: str) -> None:
        """Ask something else in place of the `number`-th question, in a branch."""
        self._require_engine()
        said = Message.user(text, attached(text, self.folder))
        self._answer(self.talk.say_instead(number, said))

    def regenerate(self, seed: int | None = None) -> None:
        """Answer the last question again, in a branch."""
        self._require_engine()
        self._answer(self.talk.question().id, seed)

    def go_on(self) -> None:
        """Let the last answer go on."""
        self._require_engine()
        self._answer(self.talk.answer().id)

    def leave_out_oldest(self) -> bool:
        """Leave out the oldest turns from now on, and ask again what was refused; return whether it was."""
        self.drop_oldest = True
        exchange, parent = self.exchange, self.answering.parent
        if exchange is None or exchange.failure is None or parent is None:
            return False
        self._require_engine()
        self._answer(parent)
        return True

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.race is not None and not self.race.done:
            self.race.stop()
            return True
        if self.exchange is not None and not self.exchange.done:
            self.engine.cancel(self.exchange.id)
            return True
        if self.state.phase in {Phase.STARTING, Phase.LOADING}:
            self.engine.cancel()
            return True
        return False

    def start_race(self, text: str = "") -> Race:
        """Answer with and without drafting; without a text, the last question of the conversation.

        A text is asked behind the conversation, of which nothing is evaluated again then, now or later.
        """
        self.require_rest()
        self._require_ready()
        if text:
            question = Message.user(text, attached(text, self.folder))
            turns = (*self.talk.answered(), question)
        else:
            turns = self.talk.turns(self.talk.question().id)
        self.race = race_of(self.engine, turns, self.options)
        return self.race

    # What comes back.

    def poll(self) -> list[Notice]:
        """Take what the engine has sent, and return it."""
        messages = self.engine.drain()
        for message in messages:
            self._take(message)
        self.answering.tick()
        self.talk.history.mend()
        return messages

    def _take(self, message: Notice) -> None:
        self.state.take(message)
        if self.race is not None and self.race.take(message):
            return
        model = "" if self.state.ready is None else self.state.ready.target
        if self.answering.take(message, model):
            return
        if isinstance(message, EngineDied):
            self._break_off()
        elif isinstance(message, Counted):
            self._counted = message.tokens

    def _answer(self, parent: int, seed: int | None = None) -> None:
        """Ask for an answer to the message `parent`, or for more of it where it is an answer."""
        if self.exchange is not None:
            self.earlier_rounds = [*self.earlier_rounds, *self.exchange.rounds][-_ROUNDS_KEPT:]
        turns = self.talk.turns(parent)
        options = self.options if seed is None else replace(self.options, seed=seed)
        number = self.engine.ask(turns, options, draft=self.draft, drop_oldest=self.drop_oldest)
        self.answering.begin(Exchange(number, turns), parent)

    def _break_off(self) -> None:
        self.answering.break_off()
        self.race = None

    # Conversations.

    def new(self) -> None:
        """Begin another conversation."""
        self.require_rest()
        self.save_state()
        self.forget()

    def open(self, conversation: int) -> None:
        """Take up a conversation of the history, with the settings that it was held with."""
        self.require_rest()
        self.save_state()
        self.forget()
        self.talk.open(conversation)
        stored = self.talk.history.conversation(conversation)
        self.options = settings.from_json(stored.settings, self.options)
        self.kept.restore()

    def set(self, name: str, value: str) -> None:
        """Change how answers are sampled; `draft` may be on or off.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == "draft":
            if value not in {"on", "off"}:
                raise UsageError(f"draft is {value[:40]!r}: it takes on or off")
            self.draft = value == "on"
            return
        self.options = settings.set_option(self.options, name, value)
        if self.talk.conversation is not None:
            kept = settings.as_json(self.options)
            self.talk.history.update(self.talk.conversation, settings=kept)

    def context_tokens(self) -> int:
        """Return how many tokens of the context are in use, as far as the engine said."""
        return self._counted if self.exchange is None else self.exchange.context_tokens

    def forget(self) -> None:
        """Let go of the conversation, which is left or gone."""
        self.talk.new()
        self.answering.forget()
        self.race = None
        self.drop_oldest = False
        self._counted = 0

    def require_rest(self) -> None:
        """Raise UsageError while an answer is under way."""
        if self.busy:
            raise UsageError("an answer is under way: stop it first (Esc)")

    def _require_engine(self) -> None:
        self.require_rest()
        if self.state.phase is Phase.DEAD:
            raise UsageError("the engine is not running: /restart starts it again")

    def _require_ready(self) -> None:
        if self.state.phase is not Phase.READY:
            raise UsageError(f"the engine is not ready ({self.state.line()}): wait for it")
