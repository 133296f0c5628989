"""Compiles grammars where they hurt nothing: a schema may come from any client, tool or server.

llguidance ends its process on some valid ones, and others never end. So a grammar is compiled in a process that can be
ended before it is compiled here; what is known already costs nothing.
"""

import re
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from queue import PriorityQueue
from threading import Lock

from localspec.bounded_process import BoundedProcess, ProcessBounds, ProcessLostError
from localspec.grammar.matcher import MOST_FUEL, MOST_ITEMS, GrammarRefused, one_line

BOUNDS = ProcessBounds(5.0, 15.0, 1 << 30)
"""Most schemas take a millisecond, the slowest that are of use one second."""
_MOST_AT_ONCE = 4
_MOST_KNOWN = 4096
_TOKEN = re.compile(r"<\[\d+\]>")
_FIRST_TOKEN = 256
"""Of the vocabulary of the single bytes: stands there for a model's own control tokens."""


class GrammarLost(GrammarRefused):
    """A grammar ended the process that compiled it, or took too long."""


class _Compiler:
    """Processes that compile: the first one stays, others help where it is busy."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[bytes, GrammarRefused | None] = OrderedDict()
        self._free: PriorityQueue[tuple[int, BoundedProcess]] = PriorityQueue(_MOST_AT_ONCE)
        module = Path(__file__).with_name("compiler_process.py")
        self._processes = [BoundedProcess(module) for _ in range(_MOST_AT_ONCE)]
        for each in enumerate(self._processes):
            self._free.put(each)

    def start(self) -> None:
        self._processes[0].start()

    def end(self) -> None:
        for each in self._processes:
            each.end()

    def require(self, source: str) -> None:
        key = blake2b(source.encode(errors="surrogatepass"), digest_size=16).digest()
        with self._lock:
            if known := key in self._known:
                self._known.move_to_end(key)
                refusal = self._known[key]
        if not known:
            refusal, lasting = self._compiled(_TOKEN.sub(f"<[{_FIRST_TOKEN}]>", source))
            if lasting:
                self._remember(key, refusal)
        if refusal is not None:
            raise type(refusal)(*refusal.args)

    def _compiled(self, source: str) -> tuple[GrammarRefused | None, bool]:
        """Return why a grammar is refused, and whether it would be again."""
        number, process = self._free.get()
        try:
            reason = process.ask((source, MOST_ITEMS, MOST_FUEL), BOUNDS)
        except ProcessLostError as error:
            return GrammarLost(f"when it is compiled, {error}: make it simpler"), error.late
        finally:
            self._put_back(number, process)
        return GrammarRefused(one_line(reason)) if reason else None, True

    def _put_back(self, number: int, process: BoundedProcess) -> None:
        """Let others use a process; once none is busy, one is enough."""
        self._free.put((number, process))
        with self._lock:
            if self._free.full():
                for each in [self._free.get() for _ in range(_MOST_AT_ONCE)]:
                    if each[0]:
                        each[1].end()
                    self._free.put(each)

    def _remember(self, key: bytes, refusal: GrammarRefused | None) -> None:
        with self._lock:
            self._known[key] = refusal
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)


_compiler = _Compiler()


def start_compiler() -> None:
    """Start the process, so that it is ready for the first grammar."""
    _compiler.start()


def require_compiles(source: str) -> None:
    """Find out whether a grammar can be compiled, at no risk for this process.

    Args:
        source: as for `compiled`.

    Raises:
        GrammarLost: it takes too long, or too much, or crashes.
        GrammarRefused: it is wrong, or goes beyond a limit.
    """
    _compiler.require(source)
