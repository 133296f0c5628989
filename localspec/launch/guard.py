"""GuardProcess: a guard model in a process of its own, beside whoever has answers judged.

A process, and not a thread or a second context in the engine: a pass of the guard runs while the target makes the next sentence, wherever the answer
comes from (this process, an engine's, a server's); it has its own share of the cores; and what kills it kills no answer.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from localspec.engine.remote import error_named
from localspec.errors import LocalspecError, ModelLoadError
from localspec.gates.guard import Verdict
from localspec.models.transfer import Progress

COMMAND = (sys.executable, "-P", "-m", "localspec.launch.guard_child")
_UNSAFE = 0.5
_MOST_DEATHS = 3
_PATIENCE = 10
"""Times that a sentence may wait: a guard that says nothing for longer hangs. One that loads again holds nothing up for longer."""
_LOADS = 3
"""Times that it ever took to load: one that takes longer to load again, and longer than `_PATIENCE` says, hangs."""
_END_S = 2.0


class _Asked:
    """A sentence that the guard was asked about; see `gates.guard.Judgement`."""

    def __init__(self, guard: "GuardProcess", wait_s: float, now_s: float) -> None:
        self._guard, self._wait_s, self.asked_s = guard, wait_s, now_s
        self.told: Verdict | None = None

    @property
    def verdict(self) -> Verdict | None:
        with self._guard.changed:
            if self.told is None and self._left_s() <= 0:
                self.told = "none"
            return self.told

    def wait(self) -> Verdict:
        with self._guard.changed:
            while self.told is None and (left_s := self._left_s()) > 0:
                self._guard.changed.wait(left_s)
        return self.verdict or "none"

    def _left_s(self) -> float:
        """How long it may still take: a guard that answers others is at work, and one that loads has ten times as long."""
        if not self._guard.is_ready:
            return self._guard.started_s + _PATIENCE * self._wait_s - time.monotonic()
        since_s = max(self.asked_s, self._guard.answered_s)
        return since_s + self._wait_s - time.monotonic()


class GuardProcess:
    """A guard at work; see `gates.guard.Judge`.

    Args:
        command: starts the process.
        on_download: is told while its model is fetched.

    Attributes:
        changed: notified when a verdict comes; guards what follows.
        is_ready: whether the model is loaded.
        started_s: when the process was started, or last told of its download, by the monotonic clock.
        answered_s: when the last verdict came, or the model was loaded, by the monotonic clock.
    """

    def __init__(
        self, command: Sequence[str], on_download: Callable[[Progress], None] = lambda _: None
    ) -> None:
        self.changed = threading.Condition()
        self.is_ready, self.answered_s, self.started_s = False, 0.0, 0.0
        self._command, self._on_download = tuple(command), on_download
        self._child: subprocess.Popen[bytes] | None = None
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._failure: LocalspecError | None = None
        self._open: dict[int, _Asked] = {}
        self._number = self._deaths = 0
        self._load_s = 0.0

    def start(self) -> None:
        """Start the process, and wait until the model is loaded.

        Raises:
            LocalspecError: it cannot be; of the class that says why.
        """
        with self.changed:
            self._start()
            while not (self.is_ready or self._failure):
                self.changed.wait()
            if self._failure is not None:
                raise self._failure

    def ask(self, question: str, before: str, text: str, wait_s: float) -> _Asked:
        """Have a sentence judged; returns at once. A guard that died is started again, a few times."""
        with self.changed:
            asked = _Asked(self, wait_s, time.monotonic())
            if self._child is None and self._deaths < _MOST_DEATHS:
                self._start()
            if self._child is None:
                asked.told = "none"
                return asked
            if self._hangs(wait_s):
                self._child.kill()  # all that waits has no verdict; the next that is asked starts it again
            self._number += 1
            self._open[self._number] = asked
            said = {"id": self._number, "question": question, "before": before, "text": text}
            self._outbox.put(json.dumps(said).encode() + b"\n")
            return asked

    def _hangs(self, wait_s: float) -> bool:
        if not self.is_ready:  # a model that takes its time to load is no fault
            patience_s = max(_PATIENCE * wait_s, _LOADS * self._load_s)
            return time.monotonic() - self.started_s > patience_s
        if not self._open:
            return False
        oldest_s = min(each.asked_s for each in self._open.values())
        return time.monotonic() - max(oldest_s, self.answered_s) > _PATIENCE * wait_s

    def close(self) -> None:
        """End the process; closing twice is harmless."""
        with self.changed:
            child, self._child, self._deaths = self._child, None, _MOST_DEATHS
            self._lose()
        if child is not None:
            self._outbox.put(None)
            child.kill()  # it holds nothing that could be lost
            child.wait(_END_S)

    def _start(self) -> None:
        self.is_ready, self.started_s = False, time.monotonic()
        try:
            child = subprocess.Popen(  # noqa: S603 - the command is ours
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._failure = ModelLoadError(f"the guard cannot be started: {error.strerror}")
            return
        self._child, self._outbox = child, SimpleQueue()
        # A guard that hangs does not read: whoever asks never waits for its pipe.
        for work, given in ((self._listen, (child,)), (_write, (child, self._outbox))):
            threading.Thread(target=work, args=given, daemon=True, name="localspec-guard").start()

    def _listen(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None  # noqa: S101 - likewise
        with child.stdout as pipe:
            for line in pipe:
                try:
                    said = json.loads(line)
                    self._heard(said)
                except (ValueError, TypeError, KeyError, OSError):  # what follows is lost or wrong
                    child.kill()
                    break
        child.wait()
        with self.changed:
            if self._child is child:
                self._child, self.is_ready = None, False
                self._outbox.put(None)
                self._deaths += 1
                self._failure = self._failure or ModelLoadError("the guard's process ended")
                self._lose()

    def _heard(self, said: dict[str, Any]) -> None:
        if "download" in said:
            self._on_download(Progress(*said["download"]))
            with self.changed:
                self.started_s = time.monotonic()  # to fetch is not to load
            return
        with self.changed:
            self.answered_s = time.monotonic()
            if "failed" in said:
                self._failure = error_named(said["failed"], f"guard: {said['reason']}")
            elif "ready" in said:
                self.is_ready = True
                self._load_s = max(self._load_s, self.answered_s - self.started_s)
            elif "working" not in said:  # on a long text, which is not late
                asked, share = self._open.pop(said["id"]), said["unsafe"]
                if asked.told is None:
                    asked.told = _verdict(share)
            self.changed.notify_all()

    def _lose(self) -> None:
        """Tell all that was asked that there will be no verdict."""
        for asked in self._open.values():
            asked.told = asked.told or "none"
        self._open.clear()
        self.changed.notify_all()


def _write(child: "subprocess.Popen[bytes]", outbox: "SimpleQueue[bytes | None]") -> None:
    assert child.stdin is not None  # noqa: S101 - it was asked for
    try:
        with child.stdin as pipe:
            while (line := outbox.get()) is not None:
                pipe.write(line)
                pipe.flush()
    except OSError:
        pass  # it is gone; whoever reads its pipe says so


def _verdict(share: float | None) -> Verdict:
    if share is None or not 0 <= share <= 1:
        return "none"
    return "unsafe" if share >= _UNSAFE else "safe"


def guard_process(
    model: str, *, offline: bool, on_download: Callable[[Progress], None]
) -> GuardProcess:
    """Return the process of a guard model, not started yet."""
    return GuardProcess((*COMMAND, model, *(["offline"] if offline else [])), on_download)
