"""Arm: one of the two settings that `ab` compares, as it is written on the command line."""

from dataclasses import dataclass, field, replace

from localspec.errors import UsageError
from localspec.launch.drafting import draft_mode
from localspec.launch.plan import Launch

KEYS = ("draft", "pair", "target", "draft_model", "kv_type", "threads", "ctx", "exact")


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
    launch: Launch = field(default_factory=Launch)

    @property
    def models(self) -> Launch:
        """What is loaded, whatever drafts: arms that agree in it share their weights."""
        return replace(self.launch, draft="off", further=())


def parse_arm(text: str, usual: Launch) -> Arm:
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
                f"draft=auto,target=FILE; known are {', '.join(KEYS)}"
            )
        values[name] = value.strip()
    mode = values.pop("draft", usual.draft)
    draft_mode(mode)
    return Arm(text, mode, _launch(text, values, usual))


def _launch(text: str, values: dict[str, str], usual: Launch) -> Launch:
    launch, options = usual, usual.options
    if values.keys() & {"pair", "target"}:
        # A draft model is chosen for a target.
        launch = replace(launch, pair=None, target=None, draft_model=None)
    for name, value in values.items():
        if name == "threads":
            options = replace(options, threads=_whole(text, name, value))
        elif name == "ctx":
            options = replace(options, n_ctx=_whole(text, name, value))
        elif name == "kv_type":
            options = replace(options, kv_type=value)
        elif name == "exact":
            if value not in {"on", "off"}:
                raise UsageError(f"arm {text[:80]!r}: exact takes on or off")
            launch = replace(launch, exact=value == "on")
    return replace(
        launch,
        options=options,
        pair=values.get("pair", launch.pair),
        target=values.get("target", launch.target),
        draft_model=values.get("draft_model", launch.draft_model),
    )


def _whole(text: str, name: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 9:
        raise UsageError(f"arm {text[:80]!r}: {name} takes a whole number")
    return int(value)
