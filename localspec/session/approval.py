"""CallRunner: carries out the calls of an answer in a thread, and holds the question of a call that needs approval."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from localspec.calls.policy import WITH_APPROVAL, CallPolicy
from localspec.display import duration_text
from localspec.errors import UsageError
from localspec.messages import ToolCall
from localspec.storage.paths import config_dir, data_dir, shown
from localspec.toolbox.loop import CarriedOut, ToolLoop
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.toolbox import Access, Proposal, Toolbox

__all__ = ["Access", "CallQuestion", "CallRunner", "CarriedOut", "Decision"]

T = TypeVar("T")

_LOOK_S = 0.05
NO_TERMINAL = "no one to ask here; a rule in tools.toml can allow it"


@dataclass(frozen=True, slots=True, eq=False)
class CallQuestion:
    """A call that a person has to allow.

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
        policy: CallPolicy = WITH_APPROVAL,
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
            prompt: returns what a person answers to a short question; None without a terminal.
        """
        question = self.question
        if question is None:
            return
        if prompt is None:
            notify(f"refused: {question.proposal.summary}; {NO_TERMINAL}")
            self.answer(question, Decision(allowed=False, reason=NO_TERMINAL))
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


def open_runner(
    folder: Path,
    servers: Sequence[str],
    functions: Sequence[Callable[..., str]],
    policy: CallPolicy,
    *,
    offline: bool,
) -> CallRunner:
    """Return what carries out calls of the functions of a folder and of MCP servers, as the user's rules permit.

    Args:
        folder: where files are read and written.
        servers: commands that start MCP servers beside those of `mcp.toml`.
        functions: others, which need no permission.
        policy: see `CallRunner`.
        offline: reach no server in the network.

    Raises:
        UsageError: the folder holds localspec's own settings or conversations, or the rules or servers cannot be read.
    """
    # Imported here: a screen knows the questions, and most conversations call nothing.
    from localspec.toolbox.built_in import BuiltIn  # noqa: PLC0415
    from localspec.toolbox.command import confinement  # noqa: PLC0415
    from localspec.toolbox.folder import Folder  # noqa: PLC0415
    from localspec.toolbox.functions import Functions  # noqa: PLC0415
    from localspec.toolbox.mcp.box import McpToolbox  # noqa: PLC0415
    from localspec.toolbox.mcp.servers import named_servers  # noqa: PLC0415
    from localspec.toolbox.rules import Rules  # noqa: PLC0415

    folder, news = folder.resolve(), SimpleQueue[str]()
    for own in (config_dir(), data_dir()):
        if own.resolve().is_relative_to(folder):
            raise UsageError(
                f"--tools would open {shown(folder)} with localspec's own {shown(own)} in it: "
                "start it in the folder of a project"
            )
    rules, (how, confined) = Rules.read(), confinement()
    notes = () if confined else (f"commands are {how}",)
    boxes: list[Toolbox] = [BuiltIn(Folder(folder), rules)]
    if functions:
        boxes.append(Functions(functions, Access.NOTHING))
    if named := named_servers(servers):
        boxes.append(McpToolbox(named, news.put, offline=offline))
    return CallRunner(boxes, Permissions(rules), notes, news, policy)


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
