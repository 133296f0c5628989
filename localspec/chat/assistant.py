"""Assistant: conversations go in, events come out, one at a time or several at once.

Receives models as protocols, never llama.cpp.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.calls.policy import NO_CALLS
from localspec.chat.answer_constraint import Preparation, reply_rules
from localspec.chat.events import Event, Finished, Prefilling, Reply, RequestFailed, Started
from localspec.chat.job import Job
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.request import Observer, Reads, Request
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import thinking_tags
from localspec.chat.token_prefix import Conversation, KnownConversations
from localspec.decoding.model import Pass, Role
from localspec.decoding.policy import Policy
from localspec.decoding.scheduler import Ended, Scheduler
from localspec.errors import LocalspecError, UsageError
from localspec.messages import MediaPart, Message, TextPart, ToolCall
from localspec.options import ReplyOptions
from localspec.storage.read_store import common_beginning

if TYPE_CHECKING:
    from localspec.chat.calling import CallDialect, Calling
    from localspec.toolbox.toolbox import Toolbox


Sink = Callable[[int, Event | RequestFailed], None]
_PATIENCE_S = 0.05
"""For what a request waits for, before what else came is looked at."""


class Assistant:
    """Answers prompts and conversations, as many at once as there are sequences.

    Requests wait until a sequence is free: those of the client with the fewest answers under way go first, in turns. Each gets the sequence that knows most of its prompt, without
    costing another conversation its own where that can be. Nothing happens but in `step`, which the other methods call.

    Args:
        models: what to answer with.
        policies: which drafter to use and how far, one for every sequence; they never change the text.
        observers: see every event.
        notes: for the user, about how it was set up, a sentence each.
        load_s: seconds that loading took.
        shared_chunk: tokens of a prompt's chunk while others are answered, see `Scheduler`; None cuts prompts as
            if they were alone.
        reads: keeps what was read, and puts it back; None keeps nothing.
        exact: use only whole cached chunks, so that no bit depends on what was answered before.

    Attributes:
        known: the conversations of requests that are not ephemeral.
        sink: gets every event as it happens, with its request's number; by default they wait for `take`.
    """

    def __init__(
        self,
        models: LoadedModels,
        policies: Sequence[Policy],
        *,
        observers: Sequence[Observer] = (),
        notes: tuple[str, ...] = (),
        load_s: float = 0.0,
        shared_chunk: int | None = None,
        reads: Reads | None = None,
        exact: bool = False,
    ) -> None:
        self._reads, self._exact = reads, exact
        self.models = models
        self.policies = tuple(policies)
        self.observers = tuple(observers)
        self.notes = notes
        self.load_s = load_s
        self._scheduler = Scheduler[Reply](
            models.by_role(),
            models.cancel,
            time.perf_counter,
            shared_chunk=shared_chunk,
            on_chunk=self._prefilled,
        )
        self.known = KnownConversations(2 * len(self.policies))
        self._waiting: list[Job] = []
        self._running: dict[int, Job] = {}
        self._events: list[tuple[int, Event | RequestFailed]] = []
        self.sink: Sink = lambda number, event: self._events.append((number, event))
        self._cancelled: set[int] = set()
        self._lock = threading.Lock()
        self._own_ids = count(-1, -1)
        self._uses = count(1)
        self._used: Counter[int] = Counter()
        self._turns: dict[str, int] = {}

    @cached_property
    def template(self) -> ChatTemplate:
        """The target's chat template.

        Raises:
            TemplateError: the model has none.
        """
        tokenizer = self.models.tokenizer
        return ChatTemplate(
            self.models.template_source,
            tokenizer.bos_text,
            tokenizer.eos_text,
            model=self.models.target_name,
            for_tools=self.models.tool_template_source,
        )

    @cached_property
    def _call_dialect(self) -> "CallDialect | None":
        """How the target writes calls; None where its template has no form for them."""
        # ruff: noqa: PLC0415 - few prompts offer functions
        from localspec.chat.calling import call_dialect

        return call_dialect(self.template.offering(tools=True), self.models.tokenizer)

    @property
    def call_dialect(self) -> "CallDialect":
        """How the target writes calls.

        Raises:
            UsageError: its template has no form for them.
        """
        dialect = self._call_dialect
        if dialect is None:
            raise UsageError(NO_CALLS.format(self.models.target_name))
        return dialect

    @property
    def policy(self) -> Policy:
        """The first sequence's policy."""
        return self.policies[0]

    @property
    def count(self) -> int:
        """How many requests it answers at once."""
        return len(self.policies)

    @property
    def running(self) -> int:
        """How many requests are being answered; others may wait."""
        return len(self._running)

    @property
    def widths(self) -> Counter[int]:
        """How wide the target's passes were, see `Scheduler`."""
        return self._scheduler.widths

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or waits."""
        return bool(self._running or self._waiting)

    def reply(
        self,
        prompt: str | Conversation,
        options: ReplyOptions | None = None,
        *,
        raw: bool = False,
        policy: Policy | None = None,
        tools: "Iterable[Callable[..., Any]] | Toolbox" = (),
        most_rounds: int = 8,
    ) -> Reply:
        """Answer, and return when the answer is complete; see `stream`.

        Args:
            prompt: as for `stream`.
            options: as for `stream`.
            raw: as for `stream`.
            policy: as for `stream`.
            tools: typed functions with docstrings, see `Functions`, or a toolbox. They are carried out as the model calls
                them, and the reply is the first that is words.
            most_rounds: after so many replies that call, the next must not.
        """
        if tools:
            answer = partial(self.reply, options=options, policy=policy)
            return _reply_in_words(answer, prompt, tools, most_rounds)
        *_, end = self.stream(prompt, options, raw=raw, policy=policy)
        assert isinstance(end, Finished), "a stream ends with it"  # noqa: S101
        return end.reply

    def stream(
        self,
        prompt: str | Conversation,
        options: ReplyOptions | None = None,
        *,
        raw: bool = False,
        policy: Policy | None = None,
    ) -> Iterator[Event]:
        """Answer, yielding events as they happen and `Finished` at the end.

        Args:
            prompt: a text, or a conversation; it gets the reply appended before `Finished` comes. Where its last
                turn is the assistant's, that turn goes on: the reply is what is new of it.
            options: how to answer.
            raw: let a text go to the model as it is, without the chat template.
            policy: drafts for this reply alone; None takes the usual one.

        Raises:
            ContextOverflow: the prompt leaves no room for an answer.
            TemplateError: the template is missing, or does not render.
            PassFailed: llama.cpp failed in the middle, or a grammar lets nothing follow that the model can write.
            UsageError: the options ask for a grammar that this reply cannot have.
        """
        number, options = next(self._own_ids), options or ReplyOptions()
        if raw and isinstance(prompt, str):
            yield from self.events(Request(number, (), options, raw=prompt), policy=policy)
            return
        if isinstance(prompt, str):
            prompt = Conversation(messages=[Message.user(prompt)])
        tools, rules = prompt.tools, prompt.call_policy
        request = Request(number, prompt.messages, options, tools=tools, call_policy=rules)
        yield from self.events(request, prompt, policy)

    def events(
        self,
        request: Request,
        conversation: Conversation | None = None,
        policy: Policy | None = None,
    ) -> Iterator[Event]:
        """Answer a request, see `stream`; no other request may have its number.

        Args:
            request: to answer.
            conversation: with its messages; it gets the reply appended. None makes one, see `known`.
            policy: as for `stream`.
        """
        self.submit(request, conversation, None if policy is None else lambda _slot: policy)
        try:
            while True:
                for _, event in self.take(request.id):
                    if isinstance(event, RequestFailed):
                        raise event.error
                    yield event
                    if isinstance(event, Finished):
                        return
                self.step()
        finally:
            self.drop(request.id)

    def submit(
        self,
        request: Request,
        conversation: Conversation | None = None,
        policy: Callable[[int], Policy] | None = None,
    ) -> None:
        """Have a request answered; its events are for `take`.

        Args:
            request: to answer.
            conversation: as for `events`.
            policy: returns what drafts for this request alone, for the sequence that answers it; None takes the usual one.
        """
        job = Job(request, conversation, policy, self.models)
        job.emit = partial(self._emit, job)
        job.preparation = self._preparation(request, conversation)
        self._waiting.append(job)

    def cancel(self, number: int) -> None:
        """End one request soon, with what it has so far; any thread may ask for it."""
        with self._lock:
            self._cancelled.add(number)
            if not any(each.request.id == number for each in self._waiting):
                self._cancel_running(number)

    def propose(
        self,
        number: int,
        at: int,
        behind: int,
        tokens: Sequence[int],
        sure: Sequence[int] = (),
        more: bool = False,
    ) -> None:
        """Give the reply of a request that is being answered a proposal, see `Proposals.add`; any thread may call it."""
        with self._lock:
            for job in self._running.values():
                if job.request.id == number and job.proposals is not None:
                    job.proposals.add(at, behind, tokens, sure, more=more)

    def drop(self, number: int) -> None:
        """Forget a request, and what happened of it."""
        self._waiting = [each for each in self._waiting if each.request.id != number]
        for slot, job in list(self._running.items()):
            if job.request.id == number:
                self._scheduler.drop(slot)
                self._withhold(job)
                self._free(slot)
        self.take(number)
        self._cancelled.discard(number)

    def step(self) -> None:
        """Begin what waits, as far as sequences are free; else go on by a round or a chunk of a prompt."""
        begun = False
        while (free := self._scheduler.free) and (ready := self._ready()):
            begun = True
            first = self._first(ready)
            self._begin(first, free)
            with self._lock:  # it waits until it runs, so that `cancel` finds it at every moment
                self._waiting.remove(first)
                self._cancel_running(first.request.id)
        if begun:
            return  # `Started` can leave before the first pass, which may take long
        if not self._running and self._waiting and self._waiting[0].preparation is not None:
            self._waiting[0].preparation.wait(_PATIENCE_S)
        if len(self._running) > 1:
            for job in self._running.values():
                job.is_shared = True
        for ended in self._scheduler.step():
            self._end(ended)

    def take(self, number: int | None = None) -> list[tuple[int, Event | RequestFailed]]:
        """Return what happened since the last call, of one request or of all, each with its request's number."""
        taken = [each for each in self._events if number is None or each[0] == number]
        self._events = [] if number is None else [e for e in self._events if e[0] != number]
        return taken

    def prompt_tokens(
        self, conversation: Conversation, options: ReplyOptions | None = None, owner: str = ""
    ) -> list[int]:
        """Return the ids of a conversation of an owner, up to where the reply begins, which is made so."""
        template, models = self.template.asked(options or ReplyOptions()), self.models
        media_tokens = partial(models.media_tokens, owner=owner)
        return conversation.prompt_tokens(template, models.tokenizer, media_tokens)

    def close(self) -> None:
        """Free the models."""
        self.settle()
        self.models.close()

    def settle(self) -> None:
        """Write what outlives this process."""
        for observer in self.observers:
            observer.close()
        for job in self._running.values():
            self._withhold(job)
        if self._reads is not None:
            self._reads.close()

    def _ready(self) -> list[Job]:
        """Return the requests that wait for nothing but their turn, and those that need not any more."""
        stopped = self.models.cancel.stops_all
        return [
            each
            for each in self._waiting
            if each.preparation is None
            or each.preparation.ended
            or stopped
            or each.request.id in self._cancelled
        ]

    def _first(self, ready: Sequence[Job]) -> Job:
        """Return the request whose turn it is: of the client with the fewest under way.

        Of equals the client that had no turn for longest, then the request that came first.
        """
        under_way = Counter(each.request.client for each in self._running.values())
        # Clients without a waiting request are forgotten.
        waiting = {each.request.client for each in self._waiting}
        self._turns = {name: turn for name, turn in self._turns.items() if name in waiting}

        def turn(each: Job) -> tuple[int, int]:
            return under_way[each.request.client], self._turns.get(each.request.client, 0)

        first = min(ready, key=turn)
        self._turns[first.request.client] = next(self._uses)
        return first

    def _begin(self, job: Job, free: Sequence[int]) -> None:
        job.start_s, request = time.perf_counter(), job.request

        def media_tokens(part: MediaPart) -> list[int]:
            if request.id in self._cancelled:  # a large picture takes seconds
                raise UsageError("the request was cancelled")
            return self.models.media_tokens(part, request.owner)

        try:
            job.add_gate()
            if job.conversation is None and request.raw is None and request.infill is None:
                job.conversation = self.known.conversation(request)
                job.is_known = not request.ephemeral
            calling = self._calling(job.conversation)
            tokens = job.prompt(lambda: self.template, media_tokens)
            job.slot = slot = self._slot(tokens, free, request.owner)
            if request.id not in self._cancelled:  # else no other has to lose anything for it
                self._make_ready(job, slot, tokens, media_tokens)
            job.policy = self.policies[slot] if job.make_policy is None else job.make_policy(slot)
            view = self.models.targets.views[slot]
            job.cached = min(view.common_prefix(tokens), len(tokens) - 1)
            reply = job.reply(tokens, calling)
            job.observers = [each.begin(request, tokens, job.policy) for each in self.observers]
        except Exception as error:  # whatever it is, it is this request's own affair
            self.sink(request.id, RequestFailed(error))
            return
        with self._lock:
            self._running[slot] = job
        self._used[slot] = next(self._uses)
        ids = tuple(tokens) if request.drafts else ()
        self._emit(job, Started(len(tokens), job.cached, ids))
        for ended in self._scheduler.start(slot, reply):
            self._end(ended)

    def _preparation(
        self, request: Request, conversation: Conversation | None
    ) -> Preparation | None:
        """Return what compiles the rules of a reply; None where it is free, or where an error comes later."""
        tools = request.tools if conversation is None else conversation.tools
        if not tools and request.options.answer_grammar is None:
            return None
        calling, thinks = None, False
        if tools and request.raw is None and request.infill is None:
            try:
                calling = self._calling(conversation or Conversation.of(request))
                thinks = bool(thinking_tags(self.template.source))
            except LocalspecError:
                return None
        make = partial(reply_rules, request.options, self.models, calling, thinks=thinks)
        return Preparation(make)

    def _calling(self, conversation: Conversation | None) -> "Calling | None":
        """Return the calls that the reply to a prompt may have; None where it is offered no functions."""
        if conversation is None or not conversation.tools:
            return None
        from localspec.chat.calling import Calling

        if conversation.call_policy.choice == "none" and self._call_dialect is None:
            return None  # what may not be called needs no form
        return Calling.of(conversation, self.call_dialect)

    def _slot(self, tokens: list[int], free: Sequence[int], owner: str) -> int:
        """Return where a prompt goes.

        Of the sequences that have nothing, or mostly the beginning of this prompt, the one that knows most of it.
        Where each holds another conversation, or another owner's, the one that was not used for longest.
        What a sequence copies from another counts as known, so that a beginning that several share is evaluated once.
        """
        targets = self.models.targets
        wanted = Pass(Role.TARGET, tokens, 1)

        def worth(slot: int) -> tuple[bool, int, int, int]:
            view = targets.views[slot]
            mine = view.owner == owner
            own = len(tokens) - targets.missing(slot, wanted) if mine else 0
            if 2 * own < view.n_cached:
                return False, 0, 0, -self._used[slot]
            return True, view.common_prefix(tokens) if mine else 0, own, -self._used[slot]

        return max(free, key=worth)

    def _make_ready(
        self,
        job: Job,
        slot: int,
        tokens: list[int],
        media_tokens: Callable[[MediaPart], Sequence[int]],
    ) -> None:
        """Have a sequence hold what is of use for a prompt, as far as the request lets it."""
        view, request, reads = self.models.targets.views[slot], job.request, self._reads
        if view.owner != request.owner:
            self._hand_over(slot, request.owner)
        view.copies = request.most_cached is None
        if reads is not None and request.most_cached is None:
            reads.keep(slot, tokens)
        if request.deterministic or self._exact:  # a chunk that begins elsewhere is another one
            view.truncate(min(view.common_prefix(tokens), len(tokens) - 1))
            view.truncate(view.in_chunks)
        if request.most_cached is not None:
            for sequences in self.models.by_role().values():
                sequences.views[slot].truncate(request.most_cached)
        if reads is not None:
            points = self._question_begins(job, tokens, media_tokens) if reads.needs_points else ()
            reads.ready(slot, tokens, request, points)

    def _question_begins(
        self, job: Job, tokens: Sequence[int], media_tokens: Callable[[MediaPart], Sequence[int]]
    ) -> tuple[int, ...]:
        """Return how many tokens of a prompt come before the words of its question: behind its files, another may be asked."""
        conversation = job.conversation
        if conversation is None or conversation.goes_on:
            return ()
        *before, last = conversation.messages
        other = TextPart("1" if last.typed.startswith("0") else "0")
        parts = tuple(other if isinstance(each, TextPart) else each for each in last.parts)
        asked = Conversation(
            messages=(*before, replace(last, parts=parts)),
            remembered=conversation.remembered,
            tools=conversation.tools,
            call_policy=conversation.call_policy,
        )
        template, tokenizer = self.template.asked(job.request.options), self.models.tokenizer
        return (common_beginning(tokens, asked.prompt_tokens(template, tokenizer, media_tokens)),)

    def _hand_over(self, slot: int, owner: str) -> None:
        """Have a sequence, and the drafter's, forget what they hold of another owner, who finds it kept where it can be."""
        if self._reads is not None:
            self._reads.keep(slot)
        for sequences in self.models.by_role().values():
            sequences.views[slot].truncate(0)
            sequences.views[slot].owner = owner

    def _cancel_running(self, number: int) -> None:
        """Cancel a request that runs, if it is among the cancelled ones."""
        if number in self._cancelled:
            self._cancelled.remove(number)
            for job in self._running.values():
                if job.request.id == number:
                    self._scheduler.cancel(job.slot)

    def _emit(self, job: Job, event: Event) -> None:
        visible = [event] if job.gate is None else job.gate.take(event)
        for each in visible:
            self.sink(job.request.id, each)
        if isinstance(event, Finished) and isinstance(visible[-1], Finished):
            if visible[-1].masked and self._reads is not None:
                self._reads.withhold(job.slot)
            event = msgspec.structs.replace(event, findings=visible[-1].findings)
        for observe in job.observers:
            observe(event)

    def _prefilled(self, slot: int, evaluated: int, total: int) -> None:
        """Emit how far a prompt is."""
        job = self._running[slot]
        if self._reads is not None:
            self._reads.passed(slot)
        self._emit(job, Prefilling(max(0, evaluated - job.cached), total - job.cached))

    def _end(self, ended: Ended[Reply]) -> None:
        job = self._running[ended.slot]
        if ended.value is not None:
            conversation, text = job.conversation, ended.value.text
            message = Message.assistant(text) if conversation is None else conversation.messages[-1]
            if job.is_known and job.conversation is not None:
                self.known.remember(job.conversation, job.request.owner)
            self._emit(job, Finished(ended.value, message))
        elif ended.error is not None:
            self._withhold(job)
            self.sink(job.request.id, RequestFailed(ended.error))
        self._free(ended.slot)

    def _withhold(self, job: Job) -> None:
        """Have nothing kept of a reply behind a gate that breaks off: what has to be masked may be in it."""
        if job.gate is not None and self._reads is not None:
            self._reads.withhold(job.slot)

    def _free(self, slot: int) -> None:
        with self._lock:
            job = self._running.pop(slot)
            self._cancelled.discard(job.request.id)
        if job.policy is not None:
            job.policy.end()


def _reply_in_words(
    answer: Callable[[Conversation], Reply],
    prompt: str | Conversation,
    tools: "Iterable[Callable[..., Any]] | Toolbox",
    most_rounds: int,
) -> Reply:
    """Return the first reply without calls; the conversation then has all calls, results and replies."""
    # Imported where something is carried out.
    from localspec.toolbox.functions import Functions
    from localspec.toolbox.loop import ToolLoop
    from localspec.toolbox.permissions import Permissions
    from localspec.toolbox.rules import Rules
    from localspec.toolbox.toolbox import Toolbox

    conversation = prompt if isinstance(prompt, Conversation) else Conversation()
    if isinstance(prompt, str):
        conversation.append_user(prompt)
    box = tools if isinstance(tools, Toolbox) else Functions(tools)
    own = conversation.call_policy
    loop = ToolLoop([box], Permissions(Rules()), own, most_rounds)
    replies = list[Reply]()

    def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
        for each in results:
            conversation.append(each)
        conversation.tools, conversation.call_policy = loop.tools, loop.policy
        replies.append(answer(conversation))
        return replies[-1].calls

    try:
        loop.converse(ask, threading.Event())
    finally:
        conversation.call_policy = own
    return replies[-1]
