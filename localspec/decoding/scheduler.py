"""Scheduler: drives one sequence or many. Each requests passes of its own; those of all are made as one.

A step is at most one chunk of one prompt, then one round of every sequence that is ready: the draft model's
passes of all, one after the other, and the target's pass of all. So a prompt holds up the rounds of
others by one chunk at a time. Knows no policy, no text and no llama.cpp; what runs may end
in a value of any kind.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """One sequence of a model.

    Attributes:
        truncate_s: seconds that removing from its cache took in all.
        in_chunks: tokens that it holds and that were evaluated in whole chunks from the first one on, as a prompt
            alone is.
        copies: whether it may copy what another sequence of the model holds.
        owner: for whom the tokens were evaluated that it holds.
    """

    truncate_s: float
    in_chunks: int
    copies: bool
    owner: str

    @property
    def n_cached(self) -> int:
        """Number of tokens that it holds."""


class Sequences(Protocol):
    """The sequences of one model, which one pass can evaluate together."""

    @property
    def views(self) -> Sequence[SequenceView]:
        """Every sequence as a model of its own."""

    @property
    def most_rows(self) -> int:
        """Most rows of logits of a pass."""

    @property
    def n_batch(self) -> int:
        """Most tokens of a pass."""

    def chunk(self, slot: int) -> int:
        """Return how many tokens of a prompt a sequence's next pass takes."""

    def missing(self, slot: int, request: Pass) -> int:
        """Return how many tokens of a request a sequence has not cached itself, its rows at least."""

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        """Evaluate the next `count` tokens of a request, or fewer, or one picture, without rows; return how many.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
            PassFailed: the pass failed.
        """

    def together(self, requests: Sequence[tuple[int, Pass]], /) -> Sequence[Logits]:
        """Return the logits of requests of several sequences, in this order, valid until the next call.

        Args:
            requests: slots and their requests; together at most `most_rows` and `n_batch` tokens.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
            PassFailed: the pass failed; every sequence knows what it has.
        """

    def compact(self, running: Collection[int]) -> None:
        """Arrange those that run so that their passes make one; each keeps what it has cached."""


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


_NOTHING = Pass(Role.TARGET, (), 0)


@dataclass(slots=True, eq=False)
class _Running(Generic[T]):
    """Something that requests passes, the pass that it requests now, and what that took."""

    generator: Generator[Pass, Passed, T]
    request: Pass = _NOTHING
    missing: int = 0
    shares: bool = False  # its pass with those of others: a prompt goes by itself
    overtaken: int = 0  # tokens of later ones that were evaluated before its own
    evaluated: int = 0
    own_s: float = 0.0  # its share of passes, what was removed from caches included
    more_s: float = 0.0
    all_s: float = 0.0  # of all sequences' passes, before this one
    truncate_s: float = 0.0  # of its sequence, before this one


@dataclass(eq=False)
class Scheduler(Generic[T]):
    """Runs what requests passes, on as many slots as the target has sequences.

    Args:
        models: the sequences of the target, and of the draft model if one is used: as many.
        flag: stops a running pass; set, it ends all sequences.
        clock: seconds, monotonic.
        shared_chunk: tokens of a prompt's chunk while others are answered, of its last one up to half as many more;
            None cuts prompts as if they were alone, which equal text needs to the bit.
        on_chunk: called after each chunk of a prompt with its slot, the tokens of it that are
            evaluated, and all of it.

    Attributes:
        widths: how many passes of the target had so many tokens.
    """

    models: Mapping[Role, Sequences]
    flag: CancelFlag
    clock: Callable[[], float]
    shared_chunk: int | None = None
    on_chunk: Callable[[int, int, int], None] = lambda _slot, _done, _all: None
    widths: Counter[int] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._running: dict[int, _Running[T]] = {}  # the oldest first
        self._cancelled: set[int] = set()
        self._lock = threading.Lock()
        self._all_s = 0.0
        self._begun = False  # a first token came, and the rounds of this step are still to be made
        self._encodes: int | None = None  # the slot whose picture or sound is evaluated now

    @property
    def running(self) -> int:
        """How many sequences run."""
        return len(self._running)

    @property
    def free(self) -> list[int]:
        """The slots that are free."""
        slots = range(len(self.models[Role.TARGET].views))
        return [slot for slot in slots if slot not in self._running]

    def start(self, slot: int, generator: Generator[Pass, Passed, T]) -> list[Ended[T]]:
        """Run a generator of passes on a free slot; return what came of it if it requests no pass."""
        assert slot not in self._running, f"slot {slot} is taken"  # noqa: S101
        self._running[slot] = _Running(generator)
        with self._lock:
            self._cancelled.discard(slot)  # that was for another one
            if not self._cancelled:
                self.flag.resume()
        return self._resumed(slot, None)

    def cancel(self, slot: int) -> None:
        """End one sequence soon, without the others; any thread may call it."""
        with self._lock:
            self._cancelled.add(slot)
            # An encoder begins again where it is stopped: those that cancel would hold up another's picture for ever.
            if self._encodes in {None, slot}:
                self.flag.interrupt()

    def drop(self, slot: int) -> None:
        """Forget a sequence; nothing comes of it."""
        running = self._running.pop(slot, None)
        if running is not None:
            running.generator.close()

    def step(self) -> list[Ended[T]]:
        """Make a chunk of prompts, and one round of every sequence that is ready; return what has ended.

        A prompt's first token ends a step, and the next one makes its rounds.
        """
        ended = self._end_cancelled() if self._cancelled else []
        if not self._begun:
            ended += self._feed_prompts()
            if self._begun:
                return ended  # who reads it need not wait for the next pass
        self._begun = False
        while drafting := self._ready(Role.DRAFT_MODEL):
            ended += self._passes(Role.DRAFT_MODEL, drafting)
        if verifying := self._ready(Role.TARGET):
            ended += self._passes(Role.TARGET, verifying)
        return ended

    def _end_cancelled(self) -> list[Ended[T]]:
        with self._lock:
            slots = sorted(self._cancelled & self._running.keys())
            self._cancelled.clear()
            self.flag.resume()
        return [ended for slot in slots for ended in self._resumed(slot, Cancelled())]

    def _feed_prompts(self) -> list[Ended[T]]:
        """Prefill one chunk for waiting requests: of one, then whole ones that fit into the rest of the chunk.

        Prompts that come together are then answered together, in wide rounds.
        """
        ended: list[Ended[T]] = []
        fed = 0
        while behind := [slot for slot, each in self._running.items() if not each.shares]:
            slot, left = self._next_prompt(behind)
            if fed and (fed + left > (self.shared_chunk or 0) or self._lacks_media(slot, left)):
                break
            ended += self._feed_prompt(slot, left, behind)
            fed += max(left, 1)
        return ended

    def _next_prompt(self, behind: Sequence[int]) -> tuple[int, int]:
        """Return which request gets the next chunk, and how many tokens neither its sequence nor another one has cached.

        The one that has fewest left, as long as the oldest is overtaken by no more than a tenth of its tokens, or one
        chunk. What the oldest gets itself counts against that: under a stream of short ones it has at least as many
        tokens evaluated as they have.
        """
        oldest, left = behind[0], {}
        for slot in behind:
            request = self._running[slot].request
            view, tokens = self.models[request.role].views[slot], request.tokens
            left[slot] = len(tokens) - view.common_prefix(tokens[: len(tokens) - request.rows])
        first = self._running[oldest]
        chunk = self.models[first.request.role].chunk(oldest)
        most = max(len(first.request.tokens) // _OVERTAKEN, chunk) - first.overtaken
        slot = min([oldest, *(each for each in behind if left[each] <= most)], key=left.__getitem__)
        return slot, left[slot]

    def _lacks_media(self, slot: int, left: int) -> bool:
        """Return whether a picture or a sound is among what is left of a request of the target, and text behind it."""
        request = self._running[slot].request
        if request.role is not Role.TARGET or left == 0 or request.tokens[-1] < 0:
            return False
        return min(request.tokens[len(request.tokens) - left :]) < 0

    def _feed_prompt(self, slot: int, left: int, behind: Sequence[int]) -> list[Ended[T]]:
        """Evaluate one chunk of a request, which may have others in front of it; others are answered meanwhile, or none."""
        running, oldest = self._running[slot], self._running[behind[0]]
        request = running.request
        model = self.models[request.role]
        most = model.chunk(slot)
        if self.shared_chunk is not None and len(behind) < len(self._running):
            most = min(most, self.shared_chunk)
        if left <= most + most // 2 and left <= model.n_batch:
            most = left  # a rest would be a pass that mostly reads weights
        count = min(most, left)
        oldest.overtaken = max(0, oldest.overtaken + (-count if oldest is running else count))
        # A pass with rows would encode all pictures before it, and others would wait for all of them.
        if left <= most and request.rows and not self._lacks_media(slot, left):
            running.missing = left  # what another one has is copied
            self._begun |= request.role is Role.TARGET
            return self._merged(request.role, [slot])
        if left == 0:
            return self._resumed(slot, NO_ROWS)
        start, count = self.clock(), min(most, left - request.rows)
        if request.role is Role.TARGET and request.tokens[len(request.tokens) - left] < 0:
            with self._lock:
                self._encodes = slot
        try:
            count = model.evaluate(slot, request, count)
        except Cancelled as cancelled:
            return self._interrupted([slot], cancelled)
        except LocalspecError as error:
            return self._resumed(slot, error)
        finally:
            with self._lock:
                self._encodes = None
        took_s = self.clock() - start
        running.own_s += took_s
        self._all_s += took_s
        running.evaluated += count
        self._update_backlog(slot)
        if request.role is Role.TARGET:
            all_of_it = len(request.tokens)
            self.on_chunk(slot, all_of_it - running.missing, all_of_it)
        return self._resumed(slot, NO_ROWS) if left == count else []

    def _ready(self, role: Role) -> list[int]:
        """Return the slots whose requests can share a pass."""
        running = self._running.items()
        return sorted([slot for slot, each in running if each.shares and each.request.role is role])

    def _update_backlog(self, slot: int) -> None:
        """Note what a request lacks in the model's cache."""
        running = self._running[slot]
        request, model = running.request, self.models[running.request.role]
        running.missing = missing = model.missing(slot, request)
        lag = 0 if request.role is Role.TARGET else _SMALL_LAG
        most = max(request.rows, min(request.rows + lag, model.n_batch))
        running.shares = request.rows > 0 and missing <= most

    def _passes(self, role: Role, slots: list[int]) -> list[Ended[T]]:
        """Make one pass for all, or as few as may hold their rows."""
        model = self.models[role]
        model.compact(sorted(self._running))  # others would have to move
        groups: list[list[int]] = []
        rows = tokens = 0
        for slot in slots:
            its_rows, its_tokens = self._running[slot].request.rows, self._running[slot].missing
            rows, tokens = rows + its_rows, tokens + its_tokens
            if not groups or rows > model.most_rows or tokens > model.n_batch:
                groups.append([])
                rows, tokens = its_rows, its_tokens
            groups[-1].append(slot)
        return [ended for group in groups for ended in self._merged(role, group)]

    def _merged(self, role: Role, group: list[int]) -> list[Ended[T]]:
        """Make one pass for a group; if it fails, retry one by one to isolate the failing sequence."""
        group = [slot for slot in group if slot in self._running]  # others may have been cancelled
        if not group:
            return []
        try:
            answers = self._pass(role, group)
        except Cancelled as cancelled:
            return self._interrupted(group, cancelled)
        except LocalspecError as error:
            if len(group) == 1:
                return self._resumed(group[0], error)
            for slot in group:
                self._update_backlog(slot)  # of a state that cannot be rolled back nothing is left
            left = [slot for slot in group if self._running[slot].shares]
            return [ended for slot in left for ended in self._merged(role, [slot])]
        # Rows are valid until the next pass, and none is made before all have had theirs.
        pairs = zip(group, answers, strict=True)
        return [ended for slot, answer in pairs for ended in self._deliver(slot, answer)]

    def _pass(self, role: Role, group: Sequence[int]) -> Sequence[Logits]:
        """Make one pass, and charge it to a group by its rows."""
        requests = [(slot, self._running[slot].request) for slot in group]
        start = self.clock()
        answers = self.models[role].together(requests)
        took_s = self.clock() - start
        self._all_s += took_s
        rows, tokens = sum([request.rows for _, request in requests]), 0
        for slot, request in requests:
            running = self._running[slot]
            running.own_s += took_s * request.rows / rows
            running.evaluated += running.missing
            tokens += running.missing
        if role is Role.TARGET:
            self.widths[tokens] += 1
        return answers

    def _deliver(self, slot: int, answer: Logits) -> list[Ended[T]]:
        """Let a request go on by a token, or the sequence to its next request."""
        running = self._running[slot]
        role, more = running.request.role, running.request.more
        if more is None:
            return self._resumed(slot, answer)
        tokens = list(running.request.tokens)
        # One request for all passes of a draft that none shares: they are many, and short.
        running.request = Pass(role, tokens, 1, more)
        running.missing, running.shares = 1, True  # all the others were evaluated just now
        while True:
            start = self.clock()
            try:
                token = more(answer)
                running.more_s += self.clock() - start
                if token is None:
                    break
                tokens.append(token)
                if len(self._running) > 1:
                    return []
                (answer,) = self._pass(role, [slot])
            except Cancelled as cancelled:
                return self._interrupted([slot], cancelled)
            except Exception as error:  # whatever it is, it is this sequence's own affair
                return self._resumed(slot, error)
        return self._resumed(slot, answer)

    def _interrupted(self, group: list[int], cancelled: Cancelled) -> list[Ended[T]]:
        """End those that were cancelled, which is all of a group if none was named.

        The others request the same pass again: what was evaluated of it was counted.
        """
        with self._lock:
            chosen = bool(self._cancelled)
        ended = self._end_cancelled()
        left = [slot for slot in group if slot in self._running]
        if self.flag.stops_all or not chosen:
            return [*ended, *(end for slot in left for end in self._resumed(slot, cancelled))]
        for slot in left:
            self._update_backlog(slot)
        return ended

    def _resumed(self, slot: int, answer: Logits | Exception | None) -> list[Ended[T]]:
        """Let a sequence go on to its next request; return what came of it if there is none."""
        running = self._running[slot]
        try:
            if isinstance(answer, Exception):
                running.request = running.generator.throw(answer)
            elif answer is None:
                running.request = next(running.generator)
            else:
                view = self.models[running.request.role].views[slot]
                truncate_s, evaluated = view.truncate_s - running.truncate_s, running.evaluated
                waited_s = max(0.0, self._all_s - running.all_s - running.own_s)
                own_s = max(0.0, running.own_s - truncate_s)
                passed = Passed(answer, evaluated, own_s, truncate_s, waited_s, running.more_s)
                running.request = running.generator.send(passed)
        except Exception as error:  # whatever it is, it is this sequence's own affair
            del self._running[slot]
            if isinstance(error, StopIteration):
                return [Ended(slot, error.value)]
            return [Ended(slot, None, error)]
        view = self.models[running.request.role].views[slot]
        running.all_s, running.truncate_s = self._all_s, view.truncate_s
        running.own_s = running.more_s = 0.0
        running.evaluated = running.overtaken = 0
        self._update_backlog(slot)
        return []
