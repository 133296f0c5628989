"""Permissions: which calls are refused, which need no question, and what the user allowed in this conversation."""

from dataclasses import dataclass

from localspec.messages import ToolCall
from localspec.toolbox.rules import Rules
from localspec.toolbox.toolbox import Access, Proposal


@dataclass(frozen=True, slots=True)
class Decision:
    """What the user decides about a call.

    Args:
        allowed: whether it is carried out.
        always: whether others like it are from now on, in this conversation; see `Permissions.scope`.
        reason: why not, as the model reads it; empty without one.
    """

    allowed: bool
    always: bool = False
    reason: str = ""


class Permissions:
    """What is allowed in one conversation.

    Args:
        rules: the user's, from their settings.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._granted: set[tuple[str, str]] = set()

    def refusal(self, call: ToolCall, proposal: Proposal) -> str | None:
        """Return why rules refuse a call, as the model reads it; None where they do not."""
        rule = self._rules.denied(call.name, proposal.subject)
        if rule is None:
            return None
        return f"the user's rules forbid this ({rule}): do it another way, or say what you need"

    def allowed(self, call: ToolCall, proposal: Proposal) -> bool:
        """Return whether a call needs no question."""
        return (
            proposal.access is Access.NOTHING
            or _like(call, proposal) in self._granted
            or self._rules.allowed(call.name, proposal.subject)
        )

    def grant(self, call: ToolCall, proposal: Proposal) -> None:
        """Ask no more about calls like this one."""
        self._granted.add(_like(call, proposal))

    def scope(self, call: ToolCall, proposal: Proposal) -> str:
        """Return what `grant` would allow."""
        if not proposal.subject:
            return f"every {call.name}"
        if proposal.access is Access.READ:
            return "all reading in this folder"
        return f"{call.name} on this file" if proposal.access is Access.WRITE else "this command"

    def forget(self) -> None:
        """Take back what was granted: another conversation begins."""
        self._granted.clear()


def _like(call: ToolCall, proposal: Proposal) -> tuple[str, str]:
    """Return what calls have in common that one answer is for."""
    if proposal.access is Access.READ and proposal.subject:
        return "", Access.READ.value
    return call.name, proposal.subject
