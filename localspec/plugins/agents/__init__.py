"""Plug-in: coding agents of other makers, started on a local model.

Touches: a process of the agent, its configuration in a folder that is removed with it, a server.
Imports: `serve`, whose server it starts or finds.
Page: docs/serve.md.
Deleted: `launch` goes, nothing else.
"""

from localspec.api import Verb

VERB = Verb(
    "Serve", "Start a coding agent on a local model.", "localspec.plugins.agents.command:launch", 20
)
