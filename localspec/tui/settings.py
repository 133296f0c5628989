"""How answers are made in a conversation: numbers as they are typed and stored, whether to draft, and how large a context."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from localspec.errors import UsageError, did_you_mean
from localspec.options import (
    LoadOptions,
    Option,
    ReplyOptions,
    changed,
    options_of,
    values_of,
)
from localspec.options.fields import SAMPLING

SYSTEM, CONTEXT, DRAFT = "system", "ctx", "draft"
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
    """

    options: ReplyOptions = field(default_factory=ReplyOptions)
    draft: str = AUTO
    n_ctx: int | None = None
    given: tuple[str, ...] = field(default=(), compare=False)

    def changed(self, name: str, value: str) -> Self:
        """Return the settings with one of them read from its text.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == DRAFT:
            # It knows every drafter, and few change this.
            from localspec.launch.drafting import draft_mode  # noqa: PLC0415

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
        return json.dumps(stored if self.n_ctx is None else stored | {CONTEXT: self.n_ctx})

    def from_json(self, text: str) -> Self:
        """Return stored settings; where they are damaged, or of another version, these."""
        try:
            values = json.loads(text)
            given = {name: values[name] for name in _STORED if name in values}
            draft = values.get(DRAFT)
            if isinstance(draft, bool):  # as it was once stored
                draft = AUTO if draft else "off"
            return replace(
                self,
                options=changed(self.options, given),
                draft=draft if isinstance(draft, str) else self.draft,
                n_ctx=LoadOptions(n_ctx=values.get(CONTEXT)).n_ctx,
                given=tuple(name for name in SAMPLING if name in values.get(_GIVEN, ())),
            )
        except (ValueError, TypeError, AttributeError, UsageError):
            return self


def _value(setting: Option, text: str) -> float | int | str | None:
    if setting.may_be_unset and text.lower() in _OFF.difference(setting.choices):
        return None
    try:
        value: float | int | str = setting.parse(text)
    except ValueError:
        raise UsageError(f"{setting.name} is {text[:40]!r}: it takes {setting.takes}") from None
    return value
