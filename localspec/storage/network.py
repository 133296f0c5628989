"""Whether this process may use the network: one switch for the setting, the variable and the flag, looked at by all that would connect."""

import os

_HUB = "HF_HUB_OFFLINE"
_closed = False


def close_network() -> None:
    """Keep this process from the network, and huggingface_hub, here and in the programs that are started from here."""
    global _closed  # noqa: PLW0603 - a process has one network
    _closed = True
    os.environ[_HUB] = "1"


def is_network_closed() -> bool:
    """Return whether `close_network` was called."""
    return _closed
