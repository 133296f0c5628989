"""Drafts of clients: what one proposes for its own answer, and the WebSocket on which it does."""

from localspec.api import DrafterEntry

DRAFTER = DrafterEntry(
    "client",
    "localspec.plugins.serve.drafts.drafter",
    usual_length=15,
    needs_draft_model=False,
    marks="<>",
    colour="warning",
    origin="proposed by the client",
)
