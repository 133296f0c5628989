"""Plug-in: models for other programs over HTTP, in the dialects of OpenAI, Anthropic, Ollama and llama-server, with a page; `ps` and `stop`.

Touches: sockets of its own, files of running servers (`engine/running.py`), the engine by its protocol.
Page: docs/serve.md.
Deleted: `serve`, `ps`, `stop` and drafts of clients go, and `launch` and `mcp`, whose plug-ins import it; `run` and `batch` find no server of the user.
"""

from localspec.api import Verb

_COMMANDS = "localspec.plugins.serve"
SERVE = Verb(
    "Serve", "Serve a model to other programs over HTTP.", f"{_COMMANDS}.command:serve", 10
)
PS = Verb("Serve", "List running servers.", f"{_COMMANDS}.servers:ps", 30)
STOP = Verb("Serve", "Stop a server.", f"{_COMMANDS}.servers:stop", 40)
