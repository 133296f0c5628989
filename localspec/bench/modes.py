"""Mode: one way to generate that is compared with the others.

`off`, `auto`, `lookup`, `lookup:K`, `model`, `model:K` are localspec's own; those of a peer are
`server:none`, `server:draft` and three kinds of n-gram lookup.
"""

from localspec.errors import UsageError
from localspec.launch.drafting import draft_mode

OFF = "off"
_PEER = "server"

PEER_MODES = (
    "server:none",
    "server:draft",
    "server:ngram-simple",
    "server:ngram-mod",
    "server:ngram-map-k",
)


def parse_modes(text: str) -> list[str]:
    """Return the modes of a comma-separated list, `off` among them: the others are compared with it.

    Raises:
        UsageError: one of them is unknown.
    """
    modes = [each.strip() for each in text.split(",") if each.strip()]
    if not modes:
        raise UsageError("--modes is empty: write for example off,auto")
    for mode in modes:
        if mode.startswith(_PEER) and mode not in PEER_MODES:
            raise UsageError(f"there is no mode {mode!r}: choose one of {', '.join(PEER_MODES)}")
        if mode not in PEER_MODES:
            draft_mode(mode)
    return list(dict.fromkeys([OFF, *modes]))


def is_peer(mode: str) -> bool:
    """Return whether a mode is a peer's."""
    return mode in PEER_MODES
