"""Session: one user, one engine, one conversation at a time. The screens and the plain form drive it.

Nothing here waits: `poll`, called ten times a second, takes what came in. No Textual.
"""

from dataclasses import replace
from pathlib import Path

from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Counted,
    EngineDied,
    Failed,
    Load,
    Message,
    Options,
    Ready,
    Started,
    Turn,
)
from localspec.errors import UsageError
from localspec.ui import settings
from localspec.ui.answering import Answering
from localspec.ui.attach import attached, with_files
from localspec.ui.engine_state import EngineState, Phase
from localspec.ui.exchange import Exchange
from localspec.ui.model_switch import ModelSwitch, name_of
from localspec.ui.models_state import ModelsState
from localspec.ui.race import Race, race_of
from localspec.ui.talk import Talk


class Session:
    """What is being said, and to whom.

    Args:
        engine: started by `start`.
        talk: the conversation.
        load: the models that are loaded where nothing else is asked for.
        options: how to answer.
        folder: what paths in `@path` are relative to.

    Attributes:
        state: what is known of the engine.
        models: what is loaded, and being loaded.
        answering: the answer that is under way.
        kept: the models' state of the conversation.
        race: the last race.
        drop_oldest: leave out the oldest turns where the context is full, instead of failing.
        draft: False answers without drafting.
    """

    def __init__(
        self, engine: EngineClient, talk: Talk, load: Load, options: Options, folder: Path
    ) -> None:
        self.engine, self.talk, self.options = engine, talk, options
        self.folder = folder
        self.state = EngineState()
        self.models = ModelSwitch(engine, self.state, load)
        self.answering = Answering(talk)
        self.kept = ModelsState(engine, talk, self.state)
        self.race: Race | None = None
        self.drop_oldest = False
        self.draft = True
        self._counted = 0
        self._resumed = ""

    @property
    def exchange(self) -> Exchange | None:
        """The last request for an answer, running or done."""
        return self.answering.exchange

    @property
    def busy(self) -> bool:
        """Whether an answer, or a race, is under way."""
        return self.answering.growing or (self.race is not None and not self.race.done)

    @property
    def named(self) -> bool:
        """Whether the user, or the conversation that was resumed, names what `start` loads."""
        return bool(self._resumed or name_of(self.models.usual))

    def start(self) -> None:
        """Start the engine, and load: the models of the conversation that was resumed, or the usual ones."""
        self.engine.start()
        if self._resumed:
            self.models.load_again(self._resumed, fetch=True)
        else:
            self.models.load_usual()
        self.kept.restore()

    def load(self, name: str) -> None:
        """Load a pair, or else a target, in place of what is loaded."""
        self.require_rest()
        self.models.load(name)
        self.kept.restore()

    def restart(self) -> None:
        """Start the engine again, with what was loaded last."""
        self._break_off()
        self.models.restart()
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
        text = with_files(text, attached(text, self.folder))
        self._answer(self.talk.say(text))

    def ask_instead(self, number: int, text: str) -> None:
        """Ask something else in place of the `number`-th question, in a branch."""
        self._require_engine()
        text = with_files(text, attached(text, self.folder))
        self._answer(self.talk.say_instead(number, text))

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
            question = Turn("user", with_files(text, attached(text, self.folder)))
            turns = (*self.talk.answered(), question)
        else:
            turns = self.talk.turns(self.talk.question().id)
        self.race = race_of(self.engine, turns, self.options)
        return self.race

    # What comes back.

    def poll(self) -> list[Message]:
        """Take what the engine has sent, and return it."""
        messages = self.engine.drain()
        for message in messages:
            self._take(message)
        self.answering.tick()
        self.talk.history.mend()
        return messages

    def _take(self, message: Message) -> None:
        self.state.take(message)
        if self.models.take(message):
            self.kept.restore()
        if self.race is not None and self.race.take(message):
            return
        if self._was_refused_too_early(message):
            return
        model = "" if self.state.ready is None else self.state.ready.target
        if self.answering.take(message, model):
            if isinstance(message, Started):
                self.talk.hold_with(self.models.name)
            return
        if isinstance(message, Ready) and not self.models.instead:
            self.talk.hold_with(self.models.name)
        elif isinstance(message, EngineDied):
            self._break_off()
        elif isinstance(message, Counted):
            self._counted = message.tokens

    def _was_refused_too_early(self, message: Message) -> bool:
        """Ask again what was refused since nothing was loaded, where something else is being loaded now."""
        exchange, parent = self.exchange, self.answering.parent
        if (
            isinstance(message, Failed)
            and exchange is not None
            and parent is not None
            and message.id == exchange.id
            and self.models.under_way
        ):
            self._answer(parent)
            return True
        return False

    def _answer(self, parent: int, seed: int | None = None) -> None:
        """Ask for an answer to the message `parent`, or for more of it where it is an answer."""
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

    def resume(self, conversation: int, *, own_models: bool = True) -> None:
        """Take up a conversation of the history before the engine is started.

        Args:
            conversation: its id.
            own_models: whether `start` loads what it was held with, and not the usual models.
        """
        self._take_up(conversation)
        self._resumed = self.talk.pair if own_models else ""

    def open(self, conversation: int) -> None:
        """Take up a conversation of the history, with the settings and the models that it was held with."""
        self.require_rest()
        self.save_state()
        self._take_up(conversation)
        if self.talk.pair and self.talk.pair != self.models.next_name:
            self.models.load_again(self.talk.pair, fetch=False)
        self.kept.restore()

    def _take_up(self, conversation: int) -> None:
        self.forget()
        self.talk.open(conversation)
        stored = self.talk.history.conversation(conversation)
        self.options = settings.from_json(stored.settings, self.options)

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
        self.options = settings.changed(self.options, name, value)
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
