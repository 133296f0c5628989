"""Plug-in: what models said in conversations is kept, as tokens, and drafted from where the same is said again. Off by default.

Touches: `store/said.db` in the data directory; it observes replies of conversations that the history keeps.
Page: docs/drafting.md.
Deleted: drafts of `store` go. The file stays: `localspec stats --wipe` before removes it, and deleting a conversation no longer reaches it.
"""

from localspec.api import DrafterEntry

DRAFTER = DrafterEntry(
    "store",
    "localspec.plugins.store.drafter",
    usual_length=15,
    needs_draft_model=False,
    marks="||",
    colour="secondary",
    origin="said before",
    setting="store",
    keeper="localspec.plugins.store.keeper",
)
