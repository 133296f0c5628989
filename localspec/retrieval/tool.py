"""DocsToolbox: `search_docs`, by which a model looks things up in an index by itself."""

from dataclasses import replace

from localspec.messages import ToolCall
from localspec.retrieval.asking import Docs
from localspec.toolbox.functions import Functions
from localspec.toolbox.toolbox import Access, Proposal


class DocsToolbox(Functions):
    """One function over one index; see `Toolbox`. It needs no permission: whoever names the index has given it.

    Args:
        docs: the index, and how much of it one call may return.
    """

    def __init__(self, docs: Docs) -> None:
        def search_docs(question: str) -> str:
            """Search the user's documents for passages, each under its path and lines.

            Args:
                question: what to look for, in words that the documents may use
            """
            texts = docs.texts(question)
            return "\n\n".join(f"{each.where}\n{each.text}" for each in texts) or "[nothing fits]"

        super().__init__([search_docs])

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do; see `Toolbox`."""
        return replace(super().propose(call), access=Access.NOTHING)
