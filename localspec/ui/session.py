"""Session: one user, one engine, one conversation at a time. The screens and the plain form drive it.

Nothing here waits: `poll`, called ten times a second, takes what came in. No Textual.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chat.events import RoundDone
from localspec.engine.client import EngineClient
from localspec.engine.protocol import Counted, Failed, Notice, Ready, ReplyDone
from localspec.errors import UsageError
from localspec.launch.names import name_of
from localspec.options import LaunchOptions, ReplyOptions
from localspec.retrieval.retriever import Docs
from localspec.session.compaction import NEARLY_FULL
from localspec.session.conversation import SavedConversation
from localspec.ui.asking import Asking
from localspec.ui.engine_state import EngineState, Phase
from localspec.ui.exchange import Exchange
from localspec.ui.model_switch import ModelSwitch
from localspec.ui.race import Race
from localspec.ui.settings import ABOUT as ABOUT_ANSWERS
from localspec.ui.settings import AUTO, NAMES, ChatSettings

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner

SYSTEM = "system"
CONTEXT = "ctx"
DRAFT = "draft"
SETTINGS = (*NAMES, SYSTEM, CONTEXT)
ABOUT = {
    **ABOUT_ANSWERS,
    SYSTEM: "System prompt; - is none",
    CONTEXT: "Tokens of context; changing it reloads the model",
}


class Session:
    """What is being said, and to whom.

    Args:
        engine: started by `start`.
        talk: the conversation.
        load: the models that are loaded where nothing else is asked for.
        options: how to answer.
        folder: what paths in `@path` are relative to.
        own: says how to answer with a model, by its name; None always takes `options`.
        work: carries out calls; None where the models may call nothing.
        docs: what questions are answered from.

    Attributes:
        state: what is known of the engine.
        models: what is loaded, and being loaded.
        asking: what is requested of them in the conversation.
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
        self.state = EngineState()
        self.models = ModelSwitch(engine, self.state, load)
        settings = ChatSettings(options)
        self.asking = Asking(engine, talk, self.state, self.models, settings, folder, work, docs)
        self._own = own
        self._counted = 0
        self._resumed = ""
        self._resumed_ctx: int | None = None
        self._resizing = False
        self._advised = False

    @property
    def settings(self) -> ChatSettings:
        """How answers are made."""
        return self.asking.settings

    @property
    def exchange(self) -> Exchange | None:
        """The last request for an answer, running or done."""
        return self.asking.exchange

    @property
    def latest(self) -> Exchange | None:
        """The last request for an answer; None where other models were loaded since, of which its figures say nothing."""
        exchange = self.exchange
        if exchange is not None and exchange.model not in {"", self.models.name}:
            return None
        return exchange

    @property
    def happened(self) -> list[RoundDone]:
        """The rounds of the last answer."""
        return [] if self.exchange is None else self.exchange.happened

    @property
    def race(self) -> Race | None:
        """The last race."""
        return self.asking.race

    @property
    def busy(self) -> bool:
        """Whether an answer, or a race, is under way."""
        return self.asking.busy

    @property
    def named(self) -> bool:
        """Whether the user, or the conversation that was resumed, names what `start` loads."""
        return bool(self._resumed or name_of(self.models.usual))

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
        self.asking.require_rest()
        self.models.load(name)
        self._restore_state()

    def restart(self) -> None:
        """Start the engine again, with what was loaded last."""
        self.asking.break_off()
        self.models.restart()
        self._restore_state()

    def farewell(self) -> str:
        """Return, on one line, what is kept of the conversation and how to go on with it; empty where nothing was said."""
        talk = self.talk
        if talk.conversation is None or not talk.messages:
            return ""
        if talk.history.trouble:
            return f"not saved: {talk.history.trouble}"
        return f"continue with: localspec chat --continue {talk.conversation}"

    def close(self) -> None:
        """Keep what the models have evaluated, and end the engine."""
        self.save_state()
        if self.asking.work is not None:
            self.asking.work.close()
        self.asking.break_off()
        self.engine.close()
        self.talk.history.close()

    def stop(self) -> bool:
        """Stop what runs; return whether there was something. What is there already is kept."""
        if self.asking.stop():
            return True
        if self.state.phase in {Phase.STARTING, Phase.LOADING}:
            self.engine.cancel()
            return True
        return False

    def poll(self) -> list[Notice]:
        """Take what the engine has sent, and return it."""
        messages = self.engine.drain()
        for message in messages:
            self._take(message)
        self.asking.go_on_calling()
        self.asking.answering.tick()
        self.talk.history.mend()
        return messages

    def _take(self, message: Notice) -> None:
        self.state.take(message)
        if self.models.take(message):
            self._restore_state()
        self.asking.take(message)
        if isinstance(message, Ready) and self._own is not None:
            self.asking.suit(ChatSettings(self._own(self.models.name)))
        if isinstance(message, Ready) and not self.models.instead:
            self.talk.set_pair(self.models.name)
        elif isinstance(message, Counted):
            self._counted = message.tokens
        elif isinstance(message, ReplyDone) and self.talk.ends_with_summary:
            self.engine.count(self.talk.turns(self.talk.messages[-1].id))
        if isinstance(message, Ready | Failed) and self._resizing:
            self._resizing = False
            self._keep_context()

    def new(self) -> None:
        """Begin another conversation."""
        self.asking.require_rest()
        self.save_state()
        self.forget()
        self.asking.settings = self.asking.usual

    def resume(self, conversation: int, *, own_models: bool = True, own_ctx: bool = True) -> None:
        """Take up a conversation of the history before the engine is started.

        Args:
            conversation: its id.
            own_models: whether `start` loads what it was held with, and not the usual models.
            own_ctx: whether it does so with the context that it was held with.
        """
        self._take_up(conversation)
        self._resumed = self.talk.pair if own_models else ""
        self._resumed_ctx = self.settings.n_ctx if own_ctx else None

    def open(self, conversation: int) -> None:
        """Take up a conversation of the history, with the settings and the models that it was held with."""
        self.asking.require_rest()
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
        self.asking.settings = self.settings.from_json(stored.settings)

    def delete(self, conversation: int) -> None:
        """Delete a conversation of the history, in all its branches."""
        self.talk.history.delete(conversation)
        if conversation == self.talk.conversation:
            self.forget()

    def forget(self) -> None:
        """Let go of the conversation, which is left or gone."""
        self.talk.new()
        self.asking.forget()
        self._counted, self._advised = 0, False

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
        if name == DRAFT and settings.draft != "off" and self._drafting == "off":
            raise UsageError("the models were loaded with --draft off: leave that out to draft")
        if name == DRAFT:
            self._require_drafter(settings.draft)
        self.asking.settings = settings
        self._keep_settings()

    def _require_drafter(self, mode: str) -> None:
        """Raise UsageError where a mode asks for a draft model and none is loaded."""
        from localspec.decoding.drafters.register import asks_draft_model  # noqa: PLC0415 - few ask

        ready = self.state.ready
        if asks_draft_model(mode.partition(":")[0]) and ready and ready.draft_model is None:
            raise UsageError(
                "no draft model is loaded: start the chat with --draft model, or leave draft at auto"
            )

    @property
    def _drafting(self) -> str:
        """How is drafted where it is not switched off: `auto`, unless something else was asked for."""
        return self.models.usual.draft

    def _keep_settings(self) -> None:
        if self.talk.conversation is not None:
            kept = self.settings.as_json()
            self.talk.history.update(self.talk.conversation, settings=kept)

    def _keep_context(self) -> None:
        """Keep the size of the context with the conversation, now that it could be had."""
        if not self.models.instead:
            n_ctx = self.models.usual.load.n_ctx
            self.asking.settings = replace(self.settings, n_ctx=n_ctx)
            self._keep_settings()

    def _resize(self, value: str) -> None:
        self.asking.require_rest()
        if value not in {"", "-", "off"} and not value.isdecimal():
            raise UsageError(f"ctx is {value[:40]!r}: it takes a number of tokens, or off")
        self.models.resize(int(value) if value.isdecimal() else None)
        self._resizing = True
        self._restore_state()

    def setting(self, name: str) -> str:
        """Return how answers are made, as it is typed."""
        if name == DRAFT and self.settings.draft == AUTO:
            return self._drafting
        if name == CONTEXT:
            asked, ready = self.models.usual.load.n_ctx, self.state.ready
            return str(asked or (ready.n_ctx if ready is not None else "off"))
        return self.talk.system or "-" if name == SYSTEM else self.settings.text_of(name)

    def setting_lines(self) -> list[str]:
        """Return how answers are made, a line for each of `SETTINGS`."""
        width = max(map(len, SETTINGS))
        return [f"{name:<{width}}  {self.setting(name)}" for name in SETTINGS]

    def context_tokens(self) -> int:
        """Return how many tokens of the context are in use, as far as the engine said."""
        latest, answer = self.latest, self.asking.answering.message
        elsewhere = answer is not None and all(each.id != answer for each in self.talk.messages)
        if latest is None or (not self.busy and (elsewhere or self.talk.ends_with_summary)):
            return self._counted
        return latest.context_tokens

    def advice(self) -> str:
        """Return, once when the context gets nearly full, what to do about it; else nothing."""
        ready = self.state.ready
        share = 0.0 if ready is None else self.context_tokens() / ready.n_ctx
        advised, self._advised = self._advised, share >= NEARLY_FULL
        if advised or not self._advised:
            return ""
        return f"the context is {share:.0%} full: /compact has the model summarise what was said"

    def save_state(self) -> None:
        """Have the engine keep what it evaluated for this conversation, unless it is still at it."""
        directory = self.talk.state_directory
        ready = self.state.phase is Phase.READY and not self.busy
        if directory is not None and self.talk.messages and ready:
            self.engine.save_state(str(directory))

    def _restore_state(self) -> None:
        """Have the engine put back what it evaluated for this conversation, where it fits.

        It waits its turn, behind a load and before whatever is asked next.
        """
        if self.talk.conversation is None or self.state.phase in {Phase.IDLE, Phase.DEAD}:
            return
        directory = self.talk.state_directory
        if directory is not None and directory.is_dir():
            self.engine.restore_state(str(directory))
        self.count()

    def count(self) -> None:
        """Have the engine count the branch that is shown."""
        if not self.talk.messages:
            self._counted = 0
        elif self.state.phase not in {Phase.IDLE, Phase.DEAD}:
            tools = () if self.asking.work is None else self.asking.work.tools
            self.engine.count(self.talk.turns(self.talk.messages[-1].id), tools)
