"""Plug-in: a server that speaks OpenAI's interface, as the engine, in a process of its own: no pass of a screen waits for a network.

Touches: the network, of which the server that was named; its key.
Page: docs/remote.md.
Deleted: `--server` and `show --for` are refused.
"""

from localspec.api import EngineEntry

ENGINE = EngineEntry(
    "localspec.plugins.remote.child",
    check="localspec.plugins.remote.client:base_of",
    command_lines="localspec.plugins.remote.other_engines:launch_of",
)
