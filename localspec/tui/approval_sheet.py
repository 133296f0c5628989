"""ApprovalSheet: asks whether a call may be carried out, and shows what it would do."""

import time

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.display import clean
from localspec.session.approval import CallQuestion
from localspec.toolbox.permissions import Decision
from localspec.toolbox.toolbox import Access
from localspec.tui.sheets import Frame, LineSheet

# Whoever is typing when the sheet appears has not read it: no key counts before a pause of so long.
CALM_S = 0.8
_KEYS = "y once · a always · n no · Esc stops"
_OF_DIFFS = {"+": "$text-success", "-": "$text-error", "@": "dim"}


class ApprovalSheet(ModalScreen[Decision | None]):
    """Asks; None stops the answer.

    Args:
        question: the call.

    Attributes:
        question: the call.
    """

    def __init__(self, question: CallQuestion) -> None:
        super().__init__()
        self.question = question
        self._last_s = 0.0

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        proposal = self.question.proposal
        with Frame("Allow this?", _KEYS, "approval"):
            yield Static(Content(clean(proposal.summary)).stylize("bold"), classes="summary")
            with VerticalScroll():
                yield Static(_preview(self.question))
            yield Static(
                Content(f"a: {clean(self.question.scope)}, in this conversation"), classes="hint"
            )

    def on_mount(self) -> None:
        """Let keys scroll; begin to wait."""
        self.query_one(VerticalScroll).focus()
        self._last_s = time.monotonic()

    def on_key(self, event: events.Key) -> None:
        """Take an answer, unless somebody is still typing."""
        now_s = time.monotonic()
        early, self._last_s = now_s - self._last_s < CALM_S, now_s
        if event.key not in {"y", "a", "n", "escape"}:
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(None)
        elif early:
            return
        elif event.key == "n":
            line = LineSheet("Why not?", "", "The model is told; Enter alone gives no reason.")
            self.app.push_screen(line, self._refuse)
        else:
            self.dismiss(Decision(allowed=True, always=event.key == "a"))

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            self.dismiss(Decision(allowed=False, reason=reason.strip()))


def _preview(question: CallQuestion) -> Content:
    """Return what would change, coloured where it is a diff."""
    proposal = question.proposal
    lines = clean(proposal.preview).split("\n")
    if proposal.access is not Access.WRITE:
        return Content("\n".join(lines))
    return Content("\n").join(
        Content(line).stylize(_OF_DIFFS[line[0]]) if line[:1] in _OF_DIFFS else Content(line)
        for line in lines
    )
