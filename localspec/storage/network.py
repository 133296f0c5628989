"""Whether this process may use the network: one switch for the setting, the variable and the flag, looked at by all that would connect."""

import os

_HUB = "HF_HUB_OFFLINE"
_closed = _is_ours = False


def close_network() -> None:
    """Keep this process from the network, and huggingface_hub, here and in the programs that are started from here."""
    global _closed, _is_ours  # noqa: PLW0603 - a process has one network
    _is_ours = _is_ours or not os.environ.get(_HUB)
    _closed = True
    os.environ[_HUB] = "1"


def is_hub_variable_ours() -> bool:
    """Return whether `close_network` set the hub's variable, which nobody had set before."""
    return _is_ours


def is_network_closed() -> bool:
    """Return whether `close_network` was called."""
    return _closed
