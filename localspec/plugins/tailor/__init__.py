"""Plug-in: makes and measures draft models for this machine.

Touches: `tailored.toml`, `tailoring/` and blobs in the data directory; what users said, as the lessons that it draws from it.
Imports: `bench`, on whose prompts it measures.
Page: docs/drafting.md.
Deleted: `tailor` goes; draft models that it made stay in the registry, and `rm` removes them.
"""

from localspec.api import Verb

VERB = Verb(
    "Speed",
    "Make a faster draft model for this machine.",
    "localspec.plugins.tailor.command:tailor",
    20,
)
