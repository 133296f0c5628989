"""EngineClient: the engine's other end. Starts the process, says what is asked, collects what it tells.

Nothing here waits: starting, asking and draining return at once, whatever the engine does, and threads
do the reading and writing. The engine gets a session of its own, so that Ctrl-C and a terminal that goes
away do not reach it; it ends when its pipe does. Knows no llama.cpp and no screen.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from localspec.engine.death import cause_of_death
from localspec.engine.protocol import (
    Ask,
    Bye,
    Cancel,
    Command,
    Count,
    EngineDied,
    Failed,
    Load,
    Message,
    Options,
    Ready,
    RestoreState,
    SaveState,
    Turn,
)
from localspec.engine.wire import MAX_FRAME_BYTES, MESSAGES, FrameError, decode, encode

# A string and no import: the child's main wires everything together, and lies above this floor.
COMMAND = (sys.executable, "-m", "localspec.child")
_STDERR_KEPT_BYTES = 8192
_DYING_S = 2.0


class _Process:
    """One run of the child, and the threads at its pipes."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None, inbox: SimpleQueue[Message]
    ) -> None:
        self._inbox = inbox
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._stderr = b""
        self.ending = False
        self._child = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
        self._threads = [
            threading.Thread(target=work, daemon=True, name=f"localspec-engine-{work.__name__}")
            for work in (self._write, self._read, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def say(self, line: bytes) -> None:
        self._outbox.put(line)

    def end(self, wait_s: float) -> None:
        """Close the pipe, which ends the child within a pass; kill it if it takes longer."""
        self.ending = True
        self._outbox.put(None)
        try:
            self._child.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for thread in self._threads:
            thread.join(_DYING_S)

    def _write(self) -> None:
        assert self._child.stdin is not None  # noqa: S101 - it was asked for
        try:
            with self._child.stdin as pipe:
                while (line := self._outbox.get()) is not None:
                    pipe.write(line)
                    pipe.flush()
        except OSError:
            pass  # the child is gone; whoever reads its pipe says so

    def _read(self) -> None:
        assert self._child.stdout is not None  # noqa: S101
        with self._child.stdout as pipe:
            # A line without its end is what a dying child was about to say.
            while (line := pipe.readline(MAX_FRAME_BYTES + 1)).endswith(b"\n"):
                try:
                    self._inbox.put(decode(line, MESSAGES))
                except FrameError as error:  # what follows cannot be trusted
                    self._inbox.put(EngineDied(f"the engine speaks nonsense: {error}"))
                    self.ending = True
                    self._child.kill()
        self._outbox.put(None)
        try:
            code = self._child.wait(_DYING_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._child.kill()
            code = self._child.wait()
        self._threads[2].join(_DYING_S)
        if not self.ending:
            self._inbox.put(EngineDied(cause_of_death(code, self._stderr)))

    def _listen(self) -> None:
        assert self._child.stderr is not None  # noqa: S101
        with self._child.stderr as pipe:
            while piece := os.read(pipe.fileno(), 4096):
                self._stderr = (self._stderr + piece)[-_STDERR_KEPT_BYTES:]


class EngineClient:
    """An engine, told what to do and asked what it did.

    Args:
        command: starts the engine's process.
        env: its environment; None hands on this one's.
    """

    def __init__(
        self, command: Sequence[str] = COMMAND, *, env: Mapping[str, str] | None = None
    ) -> None:
        self._command = tuple(command)
        self._env = env
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._process: _Process | None = None
        self._asked_load: Load | None = None
        self._last_loaded: Load | None = None
        self._next_id = 1

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """The process, for people who look for it."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; `Hello` comes when it is there. Trouble becomes `EngineDied`."""
        try:
            self._process = _Process(self._command, self._env, self._inbox)
        except OSError as error:
            reason = error.strerror or str(error)
            self._inbox.put(EngineDied(f"the engine cannot be started: {reason}"))

    def restart(self) -> None:
        """Start a new process in place of one that died or hangs, and load what was loaded last.

        Where nothing ever was, what was asked for last; a pair that it died of is not loaded again.
        """
        self.close(wait_s=0)
        self.start()
        request = self._last_loaded or self._asked_load
        if request is not None:
            self.load(request)

    def load(self, request: Load) -> None:
        """Load a pair, in place of another if one is loaded."""
        self._asked_load = request
        self._say(request)

    def ask(
        self,
        turns: Sequence[Turn],
        options: Options | None = None,
        *,
        draft: bool = True,
        afresh: bool = False,
        drop_oldest: bool = False,
    ) -> int:
        """Ask for a reply, see `Ask`; return the id that its messages bear."""
        request = Ask(0, tuple(turns), options or Options(), draft, afresh, drop_oldest)
        return self._numbered(request)

    def count(self, turns: Sequence[Turn]) -> int:
        """Ask how many tokens a conversation takes; return the id that the answer bears."""
        return self._numbered(Count(0, tuple(turns)))

    def cancel(self, id: int | None = None) -> None:  # noqa: A002 - the protocol's word
        """Stop a request; None stops a load."""
        self._say(Cancel(id))

    def save_state(self, directory: str) -> None:
        """Have what was evaluated written into a directory."""
        self._say(SaveState(directory))

    def restore_state(self, directory: str) -> None:
        """Have it put back, where it fits."""
        self._say(RestoreState(directory))

    def drain(self) -> list[Message]:
        """Return what came in since the last call, in order; made to be called ten times a second."""
        messages: list[Message] = []
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return messages
            messages.append(message)
            if isinstance(message, Ready):
                self._last_loaded = self._asked_load

    def close(self, wait_s: float = 3.0) -> None:
        """End the process, by force if it takes longer than `wait_s`; closing twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.say(encode(Bye()))
            process.end(wait_s)

    def _numbered(self, request: Ask | Count) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        self._say(replace(request, id=number))
        return number

    def _say(self, command: Command) -> None:
        if self._process is None:
            self._inbox.put(EngineDied("the engine is not running: restart it"))
            return
        try:
            self._process.say(encode(command))
        except FrameError as error:
            number = command.id if isinstance(command, Ask | Count) else None
            self._inbox.put(Failed(number, "FrameError", str(error)))
