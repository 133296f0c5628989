"""Scheduler: drives one sequence or many. Each asks for passes of its own; those of all are made as one.

A step is at most one chunk of one prompt, then one round of whoever is ready: the draft model's
passes of all, one after the other, and the target's pass of all. So a prompt holds up the rounds of
others by one chunk at a time. Knows no policy, no text and no llama.cpp; what is asked for may end
in a value of any kind.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import LanguageModel, Logits, Pass, Passed, Role
from localspec.errors import LocalspecError

T = TypeVar("T")
NO_ROWS: Logits = np.empty((0, 0), dtype=np.float32)
"""The answer to a pass without rows."""
_OVERTAKEN = 10
"""Prompts may be overtaken by a share of one in so many of their tokens."""
_SMALL_LAG = 16
"""Tokens that a draft model may catch up with in a pass that it shares; its bits decide no token."""


class SequenceView(LanguageModel, Protocol):
    """One sequence of a model, with an account of what removing from its cache took."""

    truncate_s: float
    in_chunks: int
    """Tokens that it holds and that were evaluated in whole chunks from the first one on, as a prompt alone is."""

    @property
    def n_cached(self) -> int:
        """Number of tokens that it holds."""
        ...


class Sequences(Protocol):
    """The sequences of one model, which one pass can evaluate together."""

    @property
    def views(self) -> Sequence[SequenceView]:
        """Every sequence as a model of its own."""
        ...

    @property
    def most_rows(self) -> int:
        """Most rows of logits of a pass."""
        ...

    @property
    def n_batch(self) -> int:
        """Most tokens of a pass."""
        ...

    @property
    def chunk(self) -> int:
        """Tokens of a prompt that the next pass takes; at most `n_batch`."""
        ...

    def missing(self, slot: int, request: Pass) -> int:
        """Return how many tokens of a request a sequence has not cached itself, its rows at least."""
        ...

    def evaluate(self, slot: int, request: Pass, count: int) -> None:
        """Evaluate the next `count` tokens of a request, without rows.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
            PassFailed: the pass failed.
        """
        ...

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        """Return the logits of requests of several sequences, in this order, valid until the next call.

        Args:
            asked: slots and their requests; together at most `most_rows` and `n_batch` tokens.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
            PassFailed: the pass failed; every sequence knows what it has.
        """
        ...

    def close_ranks(self, running: Collection[int]) -> None:
        """Arrange those that run so that their passes make one; each keeps what it has cached."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ended(Generic[T]):
    """What came of a sequence.

    Args:
        slot: where it ran, which is free again.
        value: what it returned; None if `error` says why there is nothing.
        error: what was wrong with it alone.
    """

    slot: int
    value: T | None
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class _Running(Generic[T]):
    """Something that asks for passes, and what it asks for now."""

    asking: Generator[Pass, Passed, T]
    order: tuple[bool, int]
    request: Pass | None = None
    missing: int = 0
    shares: bool = False  # its pass with those of others: a prompt goes by itself
    overtaken: int = 0  # tokens of later ones that were evaluated before its own
    evaluated: int = 0
    passes_s: float = 0.0  # of all sequences, when the request was made
    own_s: float = 0.0  # of this one's, since
    truncate_s: float = 0.0
    more_s: float = 0.0


class Scheduler(Generic[T]):
    """Runs what asks for passes, on as many slots as the target has sequences.

    Args:
        models: the sequences of the target, and of the draft model if one is used: as many.
        cancel: the flag that stops a running pass; set, it ends all sequences.
        clock: seconds, monotonic.
        shared_chunk: tokens of a prompt's chunk while others are answered, of its last one up to half as many more;
            None cuts prompts as if they were alone, which equal text needs to the bit.
        on_chunk: called after each chunk of a prompt with its slot, the tokens of it that are
            evaluated, and all of it.

    Attributes:
        widths: how many passes of the target gave logits, by the tokens that they evaluated; the last
            piece of a prompt is one. Whoever reads it may clear it.
    """

    def __init__(
        self,
        models: Mapping[Role, Sequences],
        cancel: CancelFlag,
        clock: Callable[[], float],
        *,
        shared_chunk: int | None = None,
        on_chunk: Callable[[int, int, int], None] = lambda _slot, _done, _all: None,
    ) -> None:
        self._models = models
        self._cancel = cancel
        self._clock = clock
        self._shared_chunk = shared_chunk
        self._on_chunk = on_chunk
        self._running: dict[int, _Running[T]] = {}
        self._cancelled: set[int] = set()
        self._lock = threading.Lock()
        self._started = 0
        self._passes_s = 0.0
        self.widths: Counter[int] = Counter()

    @property
    def running(self) -> int:
        """How many sequences run."""
        return len(self._running)

    @property
    def free(self) -> list[int]:
        """The slots that are free."""
        slots = range(len(self._models[Role.TARGET].views))
        return [slot for slot in slots if slot not in self._running]

    def start(
        self, slot: int, asking: Generator[Pass, Passed, T], *, urgent: bool = False
    ) -> list[Ended[T]]:
        """Let something run on a free slot; return what came of it if it asks for no pass.

        Args:
            slot: a free one.
            asking: asks for passes.
            urgent: its prompt goes before those of others.
        """
        assert slot not in self._running, f"slot {slot} is taken"  # noqa: S101
        self._started += 1
        self._running[slot] = _Running(asking, (not urgent, self._started))
        with self._lock:
            self._cancelled.discard(slot)  # that was for another one
            if not self._cancelled:
                self._cancel.resume()
        return self._resumed(slot, None)

    def cancel(self, slot: int) -> None:
        """End one sequence soon, without the others; any thread may ask for it."""
        with self._lock:
            self._cancelled.add(slot)
            self._cancel.interrupt()

    def drop(self, slot: int) -> None:
        """Forget a sequence; nothing comes of it."""
        running = self._running.pop(slot, None)
        if running is not None:
            running.asking.close()

    def close(self) -> None:
        """Forget all that run."""
        for slot in list(self._running):
            self.drop(slot)

    def step(self) -> list[Ended[T]]:
        """Make a chunk of prompts, and one round of whoever is ready; return what has ended."""
        ended = self._end_cancelled() if self._cancelled else []
        ended += self._feed_prompts()
        while drafting := self._ready(Role.DRAFT_MODEL):
            ended += self._passes(Role.DRAFT_MODEL, drafting)
        if verifying := self._ready(Role.TARGET):
            ended += self._passes(Role.TARGET, verifying)
        return ended

    def _end_cancelled(self) -> list[Ended[T]]:
        with self._lock:
            slots = sorted(self._cancelled & self._running.keys())
            if self._cancelled:
                self._cancelled.clear()
                self._cancel.resume()
        return [ended for slot in slots for ended in self._resumed(slot, Cancelled())]

    def _feed_prompts(self) -> list[Ended[T]]:
        """Evaluate a chunk of a request that is behind, and whole ones that fit beside it.

        Prompts that come together are answered together then: one by one, each would see rounds of few before its own.
        """
        ended: list[Ended[T]] = []
        fed = 0
        while behind := [slot for slot, each in self._running.items() if not each.shares]:
            slot, left = self._next_prompt(behind)
            if fed and fed + left > (self._shared_chunk or 0):
                break
            ended += self._feed_prompt(slot, left, beside=len(behind) < len(self._running))
            fed += max(left, 1)
        return ended

    def _next_prompt(self, behind: Sequence[int]) -> tuple[int, int]:
        """Return which request gets the next chunk, and how many tokens it has left.

        Of the urgent ones, else of all, the one that has fewest left, as long as the oldest is overtaken by no more than a tenth of
        its tokens, or one chunk. What the oldest gets itself counts against that: under a stream of short ones it has
        at least as many tokens evaluated as they have.
        """
        running = self._running
        oldest = min(behind, key=lambda slot: running[slot].order)
        request, first = self._request(oldest), running[oldest]
        best, fewest = oldest, self._left(oldest)
        most = max(len(request.tokens) // _OVERTAKEN, self._models[request.role].chunk)
        for slot in behind:
            if slot != oldest and running[slot].order[0] == first.order[0]:
                left = self._left(slot)
                if left < fewest and first.overtaken + left <= most:
                    best, fewest = slot, left
        return best, fewest

    def _overtake(self, slot: int, tokens: int) -> None:
        """Count tokens that are evaluated now for or against the oldest request that is behind."""
        behind = [each for each in self._running.values() if not each.shares]
        first = min(behind, key=lambda each: each.order)
        own = first is self._running[slot]
        first.overtaken = max(0, first.overtaken + (-tokens if own else tokens))

    def _left(self, slot: int) -> int:
        """Return how many tokens of a request neither its sequence nor another one has cached."""
        request = self._request(slot)
        view = self._models[request.role].views[slot]
        asked = request.tokens[: len(request.tokens) - request.rows]
        return len(request.tokens) - view.common_prefix(asked)

    def _feed_prompt(self, slot: int, left: int, *, beside: bool) -> list[Ended[T]]:
        """Evaluate one chunk of a request that is behind, beside others that are answered or alone."""
        request, running = self._request(slot), self._running[slot]
        model = self._models[request.role]
        most = model.chunk
        if self._shared_chunk is not None and beside:
            most = min(most, self._shared_chunk)
        tokens, view = request.tokens, model.views[slot]
        if left <= most + most // 2 and left <= model.n_batch:
            most = left  # a rest would be a pass that mostly reads weights
        self._overtake(slot, min(most, left))
        if left <= most and request.rows:
            running.missing = left  # what another one has is copied
            return self._merged(request.role, [slot])
        if left == 0:
            return self._resumed(slot, NO_ROWS)
        start, truncated = self._clock(), view.truncate_s
        count = min(most, left - request.rows)
        try:
            model.evaluate(slot, request, count)
        except Cancelled as cancelled:
            return self._interrupted([slot], cancelled)
        except LocalspecError as error:
            return self._resumed(slot, error)
        took_s, truncate_s = self._clock() - start, view.truncate_s - truncated
        running.truncate_s += truncate_s
        running.own_s += took_s - truncate_s
        self._passes_s += took_s
        running.evaluated += count
        self._take_stock(slot, request)
        if request.role is Role.TARGET:
            self._on_chunk(slot, len(tokens) - running.missing, len(tokens))
        return self._resumed(slot, NO_ROWS) if left == count else []

    def _ready(self, role: Role) -> list[int]:
        """Return the slots whose requests can share a pass."""
        running = self._running.items()
        return sorted(
            [
                slot
                for slot, each in running
                if each.shares and each.request is not None and each.request.role is role
            ]
        )

    def _take_stock(self, slot: int, request: Pass) -> None:
        """Note what a request lacks in the model's cache."""
        running, model = self._running[slot], self._models[request.role]
        running.missing = missing = model.missing(slot, request)
        lag = 0 if request.role is Role.TARGET else _SMALL_LAG
        most = max(request.rows, min(request.rows + lag, model.n_batch))
        running.shares = request.rows > 0 and missing <= most

    def _passes(self, role: Role, slots: list[int]) -> list[Ended[T]]:
        """Make one pass for all, or as few as may hold their rows."""
        model = self._models[role]
        model.close_ranks(sorted(self._running))  # others would have to move
        if len(slots) == 1:
            return self._merged(role, slots)
        groups: list[list[int]] = []
        rows = tokens = 0
        for slot in slots:
            its_rows, its_tokens = self._request(slot).rows, self._running[slot].missing
            rows, tokens = rows + its_rows, tokens + its_tokens
            if not groups or rows > model.most_rows or tokens > model.n_batch:
                groups.append([])
                rows, tokens = its_rows, its_tokens
            groups[-1].append(slot)
        return [ended for group in groups for ended in self._merged(role, group)]

    def _merged(self, role: Role, group: list[int]) -> list[Ended[T]]:
        """Make one pass for a group; if it fails, each of it alone, so that only the guilty fail."""
        group = [slot for slot in group if slot in self._running]  # others may have been cancelled
        if not group:
            return []
        model = self._models[role]
        asked = [(slot, self._request(slot)) for slot in group]
        before = [model.views[slot].truncate_s for slot in group]
        start = self._clock()
        try:
            answers = model.together(asked)
        except Cancelled as cancelled:
            return self._interrupted(group, cancelled)
        except LocalspecError as error:
            if len(group) == 1:
                return self._resumed(group[0], error)
            return [ended for slot in group for ended in self._merged(role, [slot])]
        took_s = self._clock() - start
        self._account(role, asked, before, took_s)
        # Rows are valid until the next pass, and nobody makes one before all have seen theirs.
        pairs = zip(group, answers, strict=True)
        return [ended for slot, answer in pairs for ended in self._answered(slot, answer)]

    def _answered(self, slot: int, answer: Logits) -> list[Ended[T]]:
        """Let a request go on by a token, or the sequence to its next request."""
        running, request = self._running[slot], self._request(slot)
        more = request.more
        if more is None:
            return self._resumed(slot, answer)
        tokens = list(request.tokens)
        # One request for all passes of a draft that nobody shares: they are many, and short.
        request = Pass(request.role, tokens, 1, more)
        model, alone, ended_s = self._models[request.role], len(self._running) == 1, self._clock()
        running.request = request
        running.missing, running.shares = 1, True  # all the others were evaluated just now
        while True:
            try:
                token = more(answer)
            except Exception as error:  # whatever it is, it is this sequence's own affair
                return self._resumed(slot, error)
            began_s = self._clock()
            running.more_s += began_s - ended_s
            if token is None:
                return self._resumed(slot, answer)
            tokens.append(token)
            if not alone:
                return []
            try:
                (answer,) = model.together(((slot, request),))
            except Cancelled as cancelled:
                return self._interrupted([slot], cancelled)
            except LocalspecError as error:
                return self._resumed(slot, error)
            ended_s = self._clock()
            running.own_s += ended_s - began_s
            self._passes_s += ended_s - began_s
            running.evaluated += 1

    def _account(
        self, role: Role, asked: Sequence[tuple[int, Pass]], before: list[float], took_s: float
    ) -> None:
        """Charge a pass to those who asked for it, by their rows; what was removed from a cache to its own."""
        self._passes_s += took_s
        views, rows, tokens = self._models[role].views, 0, 0
        for at, (slot, request) in enumerate(asked):
            running = self._running[slot]
            truncate_s = views[slot].truncate_s - before[at]
            running.truncate_s += truncate_s
            took_s -= truncate_s
            running.evaluated += running.missing
            tokens += running.missing
            rows += request.rows
        for slot, request in asked:
            self._running[slot].own_s += took_s * request.rows / rows
        if role is Role.TARGET:
            self.widths[tokens] += 1

    def _interrupted(self, group: list[int], cancelled: Cancelled) -> list[Ended[T]]:
        """End those that were cancelled, which is all of a group if nobody said which.

        The others ask for the same pass again: what was evaluated of it was counted.
        """
        with self._lock:
            chosen = bool(self._cancelled)
        ended = self._end_cancelled()
        left = [slot for slot in group if slot in self._running]
        if self._cancel.stops_all or not chosen:
            return [*ended, *(end for slot in left for end in self._resumed(slot, cancelled))]
        for slot in left:
            self._take_stock(slot, self._request(slot))
        return ended

    def _request(self, slot: int) -> Pass:
        request = self._running[slot].request
        assert request is not None, "it asks for a pass"  # noqa: S101
        return request

    def _resumed(self, slot: int, answer: Logits | Exception | None) -> list[Ended[T]]:
        """Let a sequence go on to its next request; return what came of it if there is none."""
        running = self._running[slot]
        ended: Ended[T]
        try:
            if isinstance(answer, Exception):
                running.request = running.asking.throw(answer)
            elif answer is None:
                running.request = next(running.asking)
            else:
                others_s = self._passes_s - running.passes_s - running.own_s - running.truncate_s
                passed = Passed(
                    answer,
                    running.evaluated,
                    running.own_s,
                    running.truncate_s,
                    max(0.0, others_s),
                    running.more_s,
                )
                running.request = running.asking.send(passed)
        except StopIteration as finished:
            ended = Ended(slot, finished.value)
        except Exception as error:  # whatever it is, it is this sequence's own affair
            ended = Ended(slot, None, error)
        else:
            running.passes_s, running.own_s, running.truncate_s = self._passes_s, 0.0, 0.0
            running.evaluated, running.more_s, running.overtaken = 0, 0.0, 0
            self._take_stock(slot, running.request)
            return []
        del self._running[slot]
        return [ended]
