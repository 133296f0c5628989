"""Plug-in: a model as MCP tools of other programs, on stdin and stdout.

Touches: stdin and stdout, the engine by its protocol.
Imports: `serve`, whose pool of models answers.
Page: docs/serve.md.
Deleted: `mcp` goes, nothing else; MCP servers whose tools models call are `toolbox/mcp`.
"""

from localspec.api import Verb

VERB = Verb(
    "Serve",
    "Offer a model to other programs as MCP tools.",
    "localspec.plugins.mcp_server.command:mcp",
    50,
)
