"""How answers are made in a conversation: names, values as they are typed, checked by those who know their ranges."""

import dataclasses
import json
from dataclasses import dataclass, field, replace
from typing import Any, Self

from localspec.engine.protocol import Options
from localspec.errors import UsageError

_WHOLE = {"top_k", "penalty_last_n", "seed", "max_tokens"}
_SAMPLING = tuple(each.name for each in dataclasses.fields(Options) if each.name != "stop")
NAMES = (*_SAMPLING, "draft")
_MAY_BE_OFF = {"seed", "max_tokens"}
_OFF = {"", "-", "none", "off"}


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How answers are made.

    Args:
        options: of every answer.
        draft: False answers without drafting.
    """

    options: Options = field(default_factory=Options)
    draft: bool = True

    def changed(self, name: str, value: str) -> Self:
        """Return the settings with one of them read from its text.

        Raises:
            UsageError: no such setting, or a value that it cannot take.
        """
        if name == "draft":
            if value not in {"on", "off"}:
                raise UsageError(f"draft is {value[:40]!r}: it takes on or off")
            return replace(self, draft=value == "on")
        if name not in NAMES:
            raise UsageError(f"there is no setting {name[:40]!r}: known are {', '.join(NAMES)}")
        change: dict[str, Any] = {name: _value(name, value)}
        return replace(self, options=_checked(replace(self.options, **change)))

    def text_of(self, name: str) -> str:
        """Return one setting as it is typed."""
        if name == "draft":
            return "on" if self.draft else "off"
        value = getattr(self.options, name)
        return "off" if value is None else f"{value:g}"

    def lines(self) -> list[str]:
        """Return the settings as they are told to people, in the order of `NAMES`."""
        width = max(map(len, NAMES))
        return [f"{name:<{width}}  {self.text_of(name)}" for name in NAMES]

    def as_json(self) -> str:
        """Return the settings as they are kept with a conversation; the seed is no setting of it."""
        values = dataclasses.asdict(self.options)
        kept = {name: values[name] for name in _SAMPLING if name != "seed"}
        return json.dumps({**kept, "draft": self.draft})

    def from_json(self, text: str) -> Self:
        """Return kept settings; where they are damaged, or of another version, these."""
        try:
            values = json.loads(text)
            known: dict[str, Any] = {name: values[name] for name in _SAMPLING if name in values}
            draft = values.get("draft")
            return replace(
                self,
                options=_checked(replace(self.options, **known)),
                draft=draft if isinstance(draft, bool) else self.draft,
            )
        except (ValueError, TypeError, AttributeError, UsageError):
            return self


def _checked(options: Options) -> Options:
    """Return the options, if an answer can be made with them.

    Raises:
        UsageError: a value is out of its range.
    """
    # Imported late: numpy comes with them, and the first frame does not wait for it.
    from localspec.decoding.sampling import SamplingParams  # noqa: PLC0415

    names = {each.name for each in dataclasses.fields(SamplingParams)} & set(_SAMPLING)
    SamplingParams(**{name: getattr(options, name) for name in names})
    if options.max_tokens is not None and options.max_tokens < 1:
        raise UsageError(f"max_tokens is {options.max_tokens}: it must be 1 or more, or off")
    return options


def _value(name: str, text: str) -> float | int | None:
    if name in _MAY_BE_OFF and text.lower() in _OFF:
        return None
    try:
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise UsageError(f"{name} is {text[:40]!r}: it takes {kind}") from None
