"""CallRunner: carries out the calls of an answer in a thread, and holds the question of a call that needs approval."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from localspec.calls.policy import ASKED_FIRST, CallPolicy
from localspec.display import duration_text
from localspec.messages import ToolCall
from localspec.toolbox.loop import CarriedOut, ToolLoop
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.toolbox import Proposal, Toolbox

T = TypeVar("T")

_LOOK_S = 0.05
NOBODY = "nobody can be asked here: a rule in tools.toml can allow it"


@dataclass(frozen=True, slots=True, eq=False)
class CallQuestion:
    """A call that somebody has to allow.

    Args:
        call: the call.
        proposal: what it would do.
        scope: what allowing it always would allow.
    """

    call: ToolCall
    proposal: Proposal
    scope: str


class CallRunner(ToolLoop):
    """Carries out calls in a thread. Nothing here waits but that thread, and `wait`.

    Args:
        boxes: the functions.
        permissions: what needs no question.
        notes: what the user should know of them, a sentence each.
        news: gets more such sentences later.
        policy: which functions may be called, how often and in what order.

    Attributes:
        question: the call that the user has to decide about now; None without one.
    """

    def __init__(
        self,
        boxes: Sequence[Toolbox],
        permissions: Permissions,
        notes: Sequence[str] = (),
        news: SimpleQueue[str] | None = None,
        policy: CallPolicy = ASKED_FIRST,
    ) -> None:
        super().__init__(boxes, permissions, policy)
        self.notes = tuple(notes)
        self._news = SimpleQueue[str]() if news is None else news
        self.question: CallQuestion | None = None
        self._answers: SimpleQueue[Decision] = SimpleQueue()
        self._outcomes: SimpleQueue[str | CarriedOut] = SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._running: tuple[str, float] | None = None
        self._question_id = ""

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until all functions are there, are given up, or `stopped` returns True."""
        waiting = threading.Thread(target=self.ready, args=(self._stop,), daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(_LOOK_S)
            if stopped():
                self._stop.set()

    def news(self) -> list[str]:
        """Return what the user should know since the last call, a sentence each."""
        return _taken(self._news)

    @property
    def busy(self) -> bool:
        """Whether calls are under way, or their results not yet taken."""
        return self._thread is not None

    @property
    def stopped(self) -> bool:
        """Whether the user stopped the last calls."""
        return self._stop.is_set()

    def forget(self) -> None:
        """Take back what was allowed: another conversation begins."""
        self.permissions.forget()

    def start(self, calls: Sequence[ToolCall]) -> None:
        """Carry out the calls of an answer."""
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self.results,
            args=(tuple(calls), self._stop),
            daemon=True,
            name="localspec-calls",
        )
        self._thread.start()

    def answer(self, question: CallQuestion, decision: Decision | None) -> None:
        """Answer a question; None stops all calls. One that is not asked any more stays unanswered."""
        if decision is None:
            self.stop()
        elif self.question is question:
            self.question = None
            self._answers.put(decision)

    def ask(
        self,
        notify: Callable[[str], None],
        preview: Callable[[str], None],
        prompt: Callable[[str], str] | None,
    ) -> None:
        """Have the open question answered at a terminal, if there is one.

        Args:
            notify: prints a line.
            preview: prints what the call would change.
            prompt: returns what a person answers to a short question; None where nobody can be asked.
        """
        question = self.question
        if question is None:
            return
        if prompt is None:
            notify(f"refused: {question.proposal.summary}; {NOBODY}")
            self.answer(question, Decision(allowed=False, reason=NOBODY))
            return
        notify(question.proposal.summary)
        if question.proposal.preview:
            preview(question.proposal.preview)
        self.answer(question, typed_decision(prompt, question.scope))

    def stop(self) -> bool:
        """Stop what runs, with all that it started; return whether there was something."""
        self._stop.set()
        return self.busy

    def line(self) -> str:
        """Return what runs, and how long it has; empty where nothing does."""
        if self._running is None:
            return ""
        summary, began_s = self._running
        return f"{summary} · {duration_text(time.monotonic() - began_s)} · Esc stops"

    def take(self) -> list[str | CarriedOut]:
        """Return the summaries of calls that began unasked, and the results of those that ended, in order.

        After the last result, nothing is `busy`.
        """
        thread = self._thread
        ended = thread is not None and not thread.is_alive()
        taken = _taken(self._outcomes)
        if ended:
            self._thread = self.question = self._running = None
        return taken

    def close(self) -> None:
        """End all of it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        super().close()

    def decide(self, call: ToolCall, proposal: Proposal, stop: threading.Event) -> Decision:
        """Wait for the user's answer."""
        self._answers, self._question_id = SimpleQueue(), call.id
        self.question = CallQuestion(call, proposal, self.permissions.scope(call, proposal))
        while not stop.is_set():
            try:
                return self._answers.get(timeout=_LOOK_S)
            except Empty:
                continue
        self.question = None
        return Decision(allowed=False, reason="they stopped the answer")

    def began(self, call: ToolCall, proposal: Proposal) -> None:
        """Take note of what runs."""
        self._running = proposal.summary, time.monotonic()
        if call.id != self._question_id:
            self._outcomes.put(proposal.summary)

    def ended(self, done: CarriedOut) -> None:
        """Keep what came of it until it is taken."""
        self._running = None
        self._outcomes.put(done)


def _taken(queue: SimpleQueue[T]) -> list[T]:
    taken = list[T]()
    with suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    return taken


def typed_decision(ask: Callable[[str], str], scope: str) -> Decision | None:
    """Return what a person answers; None where they stop. What is no answer is asked again.

    Args:
        ask: returns what is typed after a question; EOFError and KeyboardInterrupt stop.
        scope: what allowing it always would allow.
    """
    while True:
        try:
            typed = ask(f"allow? y once · a always ({scope}) · n no, then why and Enter > ").strip()
        except (EOFError, KeyboardInterrupt):
            return None
        word, _, reason = typed.partition(" ")
        match word.casefold().rstrip(",.:"):
            case "y" | "yes" if not reason:
                return Decision(allowed=True)
            case "a" | "always" if not reason:
                return Decision(allowed=True, always=True)
            case "n" | "no":
                return Decision(allowed=False, reason=reason.strip())
            case _:
                continue
