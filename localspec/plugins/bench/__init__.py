"""Plug-in: measures what drafting gains, or compares two settings, on prompts of its own or the user's.

Touches: models that it loads, stdout; it records nothing.
Page: docs/drafting.md.
Deleted: `bench` goes, and `tailor`, whose plug-in imports its prompts.
"""

from localspec.api import Verb

VERB = Verb(
    "Speed",
    "Measure drafting, or compare two settings.",
    "localspec.plugins.bench.command:bench",
    10,
)
