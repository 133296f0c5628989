"""How answers are made in a conversation: numbers as they are typed and stored, whether to draft, and how large a context."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import UsageError, did_you_mean
from localspec.options import LoadOptions, Option, ReplyOptions, changed, options_of, values_of
from localspec.options.fields import SAMPLING
from localspec.options.reply import unusual
from localspec.session.conversation import SavedConversation
from localspec.tui.models import Models

SYSTEM, CONTEXT, DRAFT, _DOCS = "system", "ctx", "draft", "docs"
_GIVEN = "given"
_OPTIONS: Mapping[str, Option] = {
    each.name: each
    for each in options_of(ReplyOptions)
    if each.kind in {"whole", "number"} or each.numbers
}
_STORED = tuple(name for name in _OPTIONS if name != "seed")
ABOUT: Mapping[str, str] = {
    **{name: each.help.partition(". ")[0].rstrip(".") for name, each in _OPTIONS.items()},
    DRAFT: "auto drafts where that is faster; or off, lookup, model, model:3",
    SYSTEM: "System prompt; - removes it",
    CONTEXT: "Tokens of context; changing it reloads the model",
}
"""What each setting does, in a few words."""
SETTINGS = tuple(ABOUT)
# How a setting reads that has no value.
_UNSET = {"seed": "random", "max_tokens": "unlimited", "think": "usual"}
_OFF = {"", "-", "none", "off", *_UNSET.values()}
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How answers are made.

    Args:
        options: of every answer.
        draft: how is drafted, as `--draft` has it; `auto` takes what the models were loaded to.
        n_ctx: tokens of context that were requested in this conversation; None if none were.
        given: sampling options that the user set in this conversation, see `Request`.
        docs: the index that questions are answered from; empty for none.
    """

    options: ReplyOptions = field(default_factory=ReplyOptions)
    draft: str = AUTO
    n_ctx: int | None = None
    given: tuple[str, ...] = field(default=(), compare=False)
    docs: str = field(default="", compare=False)

    def changed(self, name: str, value: str) -> Self:
        """Return the settings with one of them read from its text.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == DRAFT:
            # It knows every drafter, and few change this.
            from localspec.decoding.draft_mode import draft_mode  # noqa: PLC0415

            return replace(self, draft=draft_mode(AUTO if value == "on" else value).name)
        setting = _OPTIONS.get(name)
        if setting is None:
            hint = did_you_mean(name, SETTINGS) or f"choose one of {', '.join(SETTINGS)}"
            raise UsageError(f"there is no setting {name[:40]!r}: {hint}")
        given = dict.fromkeys((*self.given, name)) if name in SAMPLING else self.given
        options = changed(self.options, {name: _value(setting, value)})
        return replace(self, options=options, given=tuple(given))

    def text_of(self, name: str) -> str:
        """Return one setting as it is typed."""
        value = self.draft if name == DRAFT else values_of(self.options)[name]
        if value is None:
            return _UNSET.get(name, "off")
        return f"{value:g}" if isinstance(value, float) else str(value)

    def as_json(self) -> str:
        """Return the settings as they are stored with a conversation; the seed is no setting of it."""
        values = values_of(self.options)
        stored = {name: values[name] for name in _STORED} | {DRAFT: self.draft}
        stored |= {_GIVEN: self.given} if self.given else {}
        stored |= {_DOCS: self.docs} if self.docs else {}
        return json.dumps(stored if self.n_ctx is None else stored | {CONTEXT: self.n_ctx})

    def from_json(self, text: str) -> Self:
        """Return stored settings; where they are damaged, or of another version, these."""
        try:
            values = json.loads(text)
            given = {name: values[name] for name in _STORED if name in values}
            draft, docs = values.get(DRAFT), values.get(_DOCS)
            return replace(
                self,
                options=changed(self.options, given),
                draft=draft if isinstance(draft, str) else self.draft,
                n_ctx=LoadOptions(n_ctx=values.get(CONTEXT)).n_ctx,
                given=tuple(name for name in SAMPLING if name in values.get(_GIVEN, ())),
                docs=docs if isinstance(docs, str) else self.docs,
            )
        except (ValueError, TypeError, AttributeError, UsageError):
            return self


class ConversationSettings:
    """The settings of the conversation, which are saved with it.

    Args:
        options: how to answer, unless the user says otherwise.
        engine: answers.
        models: what is loaded.
        talk: the conversation.
        resize: loads again with so many tokens of context; None takes as many as suit.
        docs: the index that questions are answered from, unless the user says otherwise; empty for none.

    Attributes:
        current: those of this conversation.
        usual: those of a new one.
    """

    def __init__(
        self,
        options: ReplyOptions,
        engine: RemoteEngine,
        models: Models,
        talk: SavedConversation,
        resize: Callable[[int | None], None],
        docs: str = "",
    ) -> None:
        self.current = self.usual = ChatSettings(options, docs=docs)
        self._engine, self._models, self._talk, self._resize = engine, models, talk, resize

    @property
    def draft(self) -> str:
        """How is drafted in this conversation; a server knows that itself."""
        return self.current.draft if self._engine.can.draft else AUTO

    @property
    def changed(self) -> str:
        """The settings as they are stored; empty where they are the usual ones."""
        is_usual = self.current == self.usual and not self.current.given and not self.current.docs
        return "" if is_usual else self.current.as_json()

    def set(self, name: str, value: str) -> None:
        """Change how answers are made, in this conversation.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == SYSTEM:
            self._talk.set_system(None if value in {"", "-"} else value)
        elif name == CONTEXT:
            if value not in {"", "-", "off", AUTO} and not value.isdecimal():
                raise UsageError(f"ctx is {value[:40]!r}: it takes a number of tokens, or {AUTO}")
            self._resize(int(value) if value.isdecimal() else None)
        else:
            settings = self.current.changed(name, value)
            if name == DRAFT and (settings.draft != AUTO or self._engine.can.draft):
                self._require_drafter(settings.draft)
            self.current = settings
            self.save()

    def unusual(self, name: str) -> str:
        """Return what comes of a setting's value that hardly anybody can mean; empty where it is a usual one."""
        return unusual(name, values_of(self.current.options).get(name))

    def text_of(self, name: str) -> str:
        """Return how answers are made, as it is typed."""
        if name == DRAFT and self.draft == AUTO:
            return self._models.usual.draft
        if name == CONTEXT:
            n_ctx, ready = self._models.usual.load.n_ctx, self._models.ready
            return str(n_ctx or (ready is not None and ready.n_ctx) or AUTO)
        return self._talk.system or "-" if name == SYSTEM else self.current.text_of(name)

    def lines(self) -> list[str]:
        """Return how answers are made, a line for each of `SETTINGS`."""
        width = max(map(len, SETTINGS))
        return [f"{name:<{width}}  {self.text_of(name)}" for name in SETTINGS]

    def suit(self, usual: ChatSettings) -> None:
        """Answer as suits another model from now on, unless the user changed a setting of this conversation."""
        if replace(self.current, n_ctx=None) == self.usual:
            now = self.current
            self.current = replace(usual, n_ctx=now.n_ctx, given=now.given, docs=now.docs)
        self.usual = replace(usual, docs=self.usual.docs)

    def answer_from(self, docs: str) -> None:
        """Answer from an index, which was found, in this conversation and in the next ones; an empty name takes none."""
        self.current, self.usual = replace(self.current, docs=docs), replace(self.usual, docs=docs)
        self.save()

    def save(self) -> None:
        """Save them with the conversation."""
        if self._talk.conversation is not None:
            self._talk.history.update(self._talk.conversation, settings=self.current.as_json())

    def _require_drafter(self, mode: str) -> None:
        """Raise UsageError if nothing may draft, or a mode needs a draft model and none is loaded."""
        from localspec.decoding.drafters.register import uses_draft_model  # noqa: PLC0415 - not at the start

        self._engine.can.require("draft", "/set draft")
        ready = self._models.ready
        if mode != "off" and self._models.usual.draft == "off":
            raise UsageError("the models were loaded with --draft off: leave that out to draft")
        if uses_draft_model(mode.partition(":")[0]) and ready and ready.draft_model is None:
            raise UsageError(
                "no draft model is loaded: start the chat with --draft-model NAME, or leave draft at auto"
            )


def _value(setting: Option, text: str) -> float | int | str | None:
    if setting.may_be_unset and text.lower() in _OFF.difference(setting.choices):
        return None
    try:
        value: float | int | str = setting.parse(text)
    except ValueError:
        raise UsageError(f"{setting.name} is {text[:40]!r}: it takes {setting.takes}") from None
    return value
