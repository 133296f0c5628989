"""Arm: one of the two settings that `ab` compares, as it is written on the command line."""

from dataclasses import dataclass, field, replace
from typing import Any

from localspec.errors import UsageError
from localspec.launch.drafting import draft_mode
from localspec.options import LaunchOptions, Option, changed, options_of

KEYS = {each.name: each for each in options_of(LaunchOptions) if each.in_arm}


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting.

    Args:
        text: as it was written.
        mode: what drafts.
        launch: what is loaded, ready for that mode.
    """

    text: str
    mode: str
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    @property
    def models(self) -> LaunchOptions:
        """What is loaded, whatever drafts: arms that agree in it share their weights."""
        return replace(self.launch, draft="off", further=())


def parse_arm(text: str, usual: LaunchOptions) -> Arm:
    """Return the arm that `off`, `model:3`, `pair=NAME`, or `target=FILE,draft=lookup:8` means.

    Args:
        text: a draft mode, or settings with commas between them; what is left out is as usual.
        usual: the verb's own options.

    Raises:
        UsageError: it means none.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            name, value = "draft", name
        name = name.strip().replace("-", "_")
        if name not in KEYS or not value.strip() or name in values:
            raise UsageError(
                f"arm {text[:80]!r}: give a draft mode like off or model:3, or settings like "
                f"draft=auto,target=FILE; use one of {', '.join(KEYS)}"
            )
        values[name] = value.strip()
    mode = values.pop("draft", usual.draft)
    draft_mode(mode)
    return Arm(text, mode, _launch(text, values, usual))


def _launch(text: str, values: dict[str, str], usual: LaunchOptions) -> LaunchOptions:
    if values.keys() & {"pair", "target"}:
        # A draft model is chosen for a target.
        usual = replace(usual, pair=None, target=None, draft_model=None)
    return changed(usual, {name: _value(text, KEYS[name], each) for name, each in values.items()})


def _value(text: str, key: Option, value: str) -> Any:
    switch = key.kind == "switch"
    try:
        return {"on": True, "off": False}[value] if switch else key.parse(value)
    except (KeyError, ValueError):
        takes = "on or off" if switch else key.takes
        raise UsageError(f"arm {text[:80]!r}: {key.name} takes {takes}") from None
