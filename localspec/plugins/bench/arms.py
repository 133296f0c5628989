"""Arms: the settings that a measurement compares, as they are written on the command line."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.api import LaunchOptions, UsageError, changed, load_registry
from localspec.decoding.draft_mode import draft_mode
from localspec.decoding.drafters.register import DRAFTERS, WITHOUT_MODEL, uses_draft_model
from localspec.options import Option, options_of

OFF = "off"
_NAMES = {
    *("pair", "target", "draft_model", "draft", "draft_lora", "exact"),
    *("ctx", "kv_type", "threads"),
}
KEYS = {each.name: each for each in options_of(LaunchOptions) if each.name in _NAMES}


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting.

    Args:
        name: what figures call it; of an arm that is a draft mode, that mode.
        text: as it was written.
        mode: what drafts.
        launch: what is loaded, ready for that mode.
    """

    name: str
    text: str
    mode: str
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    @property
    def models(self) -> LaunchOptions:
        """What is loaded, whatever drafts: arms that agree in it share their weights."""
        return replace(self.launch, draft=OFF, further=())


def mode_arms(text: str | None, launch: LaunchOptions) -> list[Arm]:
    """Return an arm for each draft mode of a comma-separated list, `off` first: the others are compared with it.

    Args:
        text: the list; None takes off, auto, lookup, and model or heads if the pair has them.
        launch: what all of them load.

    Raises:
        UsageError: one of them is unknown.
    """
    modes = _usual_modes(launch) if text is None else [each.strip() for each in text.split(",")]
    modes = list(filter(None, modes))
    if not modes:
        raise UsageError("--modes is empty: write for example off,auto")
    for mode in modes:
        draft_mode(mode)
    return [Arm(mode, mode, mode, launch) for mode in dict.fromkeys([OFF, *modes])]


def _usual_modes(launch: LaunchOptions) -> Sequence[str]:
    usual, draft_model = [OFF, "auto", WITHOUT_MODEL], launch.draft_model
    if draft_model is None and launch.target is None:
        registry = load_registry()
        pair = registry.pair(launch.pair or registry.default_pair)
        draft_model, drafter = pair.draft_model, registry.drafter_of(pair)
        if drafter is not None and drafter.heads is not None:
            return [*usual, "heads"]
    return usual if draft_model is None else [*usual, *filter(uses_draft_model, DRAFTERS)]


def parse_arm(name: str, text: str, usual: LaunchOptions) -> Arm:
    """Return the arm that `off`, `model:3`, `pair=NAME`, or `target=FILE,draft=lookup:8` means.

    Args:
        name: what figures call it.
        text: a draft mode, or settings with commas between them; what is left out is as usual.
        usual: the verb's own options.

    Raises:
        UsageError: it means none.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            key, value = "draft", key
        key = key.strip().replace("-", "_")
        if key not in KEYS or not value.strip() or key in values:
            raise UsageError(
                f"arm {text[:80]!r}: give a draft mode like off or model:3, or settings like "
                f"draft=auto,target=FILE; use one of {', '.join(KEYS)}"
            )
        values[key] = value.strip()
    mode = values.pop("draft", usual.draft)
    draft_mode(mode)
    if values.keys() & {"pair", "target"}:
        # A draft model is chosen for a target.
        usual = replace(usual, pair=None, target=None, draft_model=None)
    parsed = {key: _value(text, KEYS[key], value) for key, value in values.items()}
    return Arm(name, text, mode, changed(usual, parsed))


def _value(text: str, key: Option, value: str) -> Any:
    switch = key.kind == "switch"
    try:
        return {"on": True, "off": False}[value] if switch else key.parse(value)
    except (KeyError, ValueError):
        takes = "on or off" if switch else key.takes
        raise UsageError(f"arm {text[:80]!r}: {key.name} takes {takes}") from None
