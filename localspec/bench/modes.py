"""Mode: one way to generate that is compared with the others.

`off`, `auto`, `lookup`, `lookup:K`, `model`, `model:K` are localspec's own; those of a peer are
`server:none`, `server:draft` and three kinds of n-gram lookup.
"""

import re
from collections.abc import Mapping, Sequence

from localspec.drafting import MAX_DRAFT_LENGTH
from localspec.errors import UsageError

OFF = "off"
_OWN = re.compile(r"off|auto|(?:lookup|model)(?::([0-9]{1,4}))?")

# What makes llama-server draft that way, beside its defaults.
PEER_FLAGS: Mapping[str, tuple[str, ...]] = {
    "server:none": (),
    "server:draft": ("--spec-type", "draft-simple"),
    "server:ngram-simple": ("--spec-type", "ngram-simple"),
    "server:ngram-mod": ("--spec-type", "ngram-mod"),
    "server:ngram-map-k": ("--spec-type", "ngram-map-k"),
}


def parse_modes(text: str) -> list[str]:
    """Return the modes of a comma-separated list, `off` among them: the others are compared with it.

    Raises:
        UsageError: one of them is unknown.
    """
    modes = [each.strip() for each in text.split(",") if each.strip()]
    if not modes:
        raise UsageError("modes are empty: give some, such as off,auto")
    for mode in modes:
        match = _OWN.fullmatch(mode)
        if match is None and mode not in PEER_FLAGS:
            raise UsageError(
                f"there is no mode {mode!r}: choose of off, auto, lookup, lookup:K, model, model:K, "
                f"and with --against {', '.join(PEER_FLAGS)}"
            )
        if match and match[1] and not 1 <= int(match[1]) <= MAX_DRAFT_LENGTH:
            raise UsageError(f"mode {mode}: the draft length must be from 1 to {MAX_DRAFT_LENGTH}")
    return list(dict.fromkeys([OFF, *modes]))


def is_peer(mode: str) -> bool:
    """Return whether a mode is a peer's."""
    return mode in PEER_FLAGS


def wants_draft_model(modes: Sequence[str]) -> bool:
    """Return whether one of the modes cannot do without a draft model."""
    return any(mode.startswith("model") or mode == "server:draft" for mode in modes)


def draft_length(mode: str, usual: int) -> int:
    """Return the K of `lookup:K` or `model:K`; `usual` where it is not given."""
    _, _, length = mode.partition(":")
    return int(length) if length.isdecimal() else usual
