"""RequestRunner: conversations with the same models, several at once, as the protocol's notices."""

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, RequestFailed, RoundDone
from localspec.chat.request import Request
from localspec.chat.thinking import thinking_tags
from localspec.decoding.costs import PairCosts
from localspec.decoding.policy import LONGEST_DRAFT, Policy
from localspec.decoding.round import Round
from localspec.engine.forecast import (
    by_draft_model,
    chance_of_acceptance,
    draft_note,
    no_drafting,
    reason,
)
from localspec.engine.protocol import (
    Count,
    Counted,
    Detokenize,
    Embed,
    Failed,
    FrameError,
    Notice,
    Propose,
    Ready,
    ReplyEvents,
    Tokenize,
    Tokens,
)
from localspec.errors import LocalspecError, TemplateError, UsageError
from localspec.messages import Held, Message, checked_text


class Loaded(Protocol):
    """Models that answer, and what can be done with them."""

    @property
    def assistant(self) -> Assistant:
        """What answers."""

    @property
    def costs(self) -> PairCosts | None:
        """What passes take, where that was measured."""

    @property
    def held(self) -> Held:
        """The memory that they hold."""

    def policy(self, mode: str, slot: int) -> Policy:
        """Return what drafts by a mode, as `--draft` has it, for a sequence; raises UsageError where nothing can."""


def ready_of(loaded: Loaded) -> Ready:
    """Return what clients get to know of what is loaded."""
    assistant, media = loaded.assistant, loaded.assistant.models.media
    try:
        thinks = bool(thinking_tags(assistant.template.source))
    except TemplateError:  # which every request reports
        thinks = False
    return Ready(
        target=assistant.models.target_name,
        draft_model=assistant.models.draft_model_name,
        drafter=assistant.policy.name,
        n_ctx=assistant.models.target.n_ctx,
        longest=assistant.models.longest,
        notes=assistant.notes,
        load_s=assistant.load_s,
        thinks=thinks,
        held=loaded.held,
        sees=media is not None and media.sees,
        hears=media is not None and media.hears,
        pass_s=() if loaded.costs is None else tuple(map(loaded.costs.target.of, _WIDTHS)),
    )


_WIDTHS = range(1, 2 + LONGEST_DRAFT)
# Room for an answer, as a share of the context, where its length is not limited.
_ANSWER_SHARE = 4


def dropped_to_fit(
    messages: Sequence[Message],
    n_ctx: int,
    max_tokens: int | None,
    length: Callable[[Sequence[Message]], int],
    least_questions: int = 1,
) -> int:
    """Return how many of the oldest messages after the system prompt to leave out; as few as will do.

    What remains begins with a user's message, and ends with the last one: where even that is too long, nothing helps, and
    all before it is left out.

    Args:
        messages: the conversation, system prompt first if there is one.
        n_ctx: tokens of context.
        max_tokens: most tokens of the answer; a quarter of the context is kept free at most.
        length: counts the tokens of a conversation.
        least_questions: as in `Request`.
    """
    system = list(messages[:1]) if messages[0].role == "system" else []
    rest = messages[len(system) :]
    room = n_ctx - min(n_ctx // _ANSWER_SHARE, max_tokens or n_ctx)
    last = len(rest) - 1 if rest[-1].role == "user" else max(0, len(rest) - 2)
    starts = [0, *(i for i in range(1, last + 1) if rest[i].role == "user")]
    low, high = 0, max(0, len(starts) - least_questions)
    while low < high:  # the more is left out, the shorter it gets
        middle = (low + high) // 2
        if length([*system, *rest[starts[middle] :]]) <= room:
            high = middle
        else:
            low = middle + 1
    return starts[low]


def shortened(
    request: Request, n_ctx: int, length: Callable[[Sequence[Message]], int]
) -> tuple[Request, int]:
    """Return a request without the oldest messages that do not fit, and how many these are; see `dropped_to_fit`."""
    messages, most = request.messages, request.options.max_tokens
    dropped = dropped_to_fit(messages, n_ctx, most, length, request.least_questions)
    system = messages[:1] if messages[0].role == "system" else ()
    left = (*system, *messages[len(system) + dropped :])
    return msgspec.structs.replace(request, messages=left), dropped


@dataclass(slots=True, eq=False)
class _Running:
    """A request that is being answered."""

    request: Request
    dropped: int
    rounds: list[Round] = field(default_factory=list)
    others: Counter[int] = field(default_factory=Counter)


class RequestRunner:
    """Answers with what is loaded.

    Args:
        loaded: the models.
        send: sends a notice to the client; never waits.

    Attributes:
        step: the assistant's; it sends what happens, and raises ModelChanged.
    """

    def __init__(self, loaded: Loaded, send: Callable[[Notice], None]) -> None:
        self._loaded = loaded
        self._assistant = loaded.assistant
        self._assistant.sink = self._take
        self.step = self._assistant.step
        self._send = send
        self._under_way: dict[int, _Running] = {}
        self._chance: float | None = None

    @property
    def target_name(self) -> str:
        """How the target is called."""
        return self._assistant.models.target_name

    @property
    def busy(self) -> bool:
        """Whether something is being answered."""
        return bool(self._under_way)

    def submit(self, request: Request | Embed) -> None:
        """Have a request answered; raises LocalspecError where that cannot be."""
        if isinstance(request, Embed):
            raise UsageError(
                f"{self.target_name} was loaded to write texts: load a model for vectors"
            )
        self._assistant.models.check()
        dropped = 0
        if request.raw is not None:
            if isinstance(request.raw, str):
                checked_text(request.raw, "the prompt")
        elif request.infill is None:
            _require_question(request.messages)
            if request.drop_oldest:
                n_ctx = self._assistant.models.target.n_ctx
                request, dropped = shortened(request, n_ctx, partial(self._length, request))
        self._under_way[request.id] = _Running(request, dropped)
        draft = request.draft
        policy = None if draft is None else partial(self._loaded.policy, draft)
        self._assistant.submit(request, policy=policy)

    def cancel(self, number: int) -> None:
        """End one answer with what there is of it; any thread may call it."""
        self._assistant.cancel(number)

    def propose(self, command: Propose) -> None:
        """Give an answer under way what its client proposes; any thread may call it."""
        self._assistant.propose(command.id, *msgspec.structs.astuple(command.proposal))

    def _take(self, number: int, event: Event | RequestFailed) -> None:
        """Send what happened of a request; raises ModelChanged."""
        job = self._under_way[number]
        if isinstance(event, Finished | RequestFailed):
            self._end(job, event)
            return
        if isinstance(event, RoundDone):
            self._note(job, event.round)
            if not job.request.rounds:
                return
        self._send(ReplyEvents(number, (event,)))

    def _note(self, job: _Running, done: Round) -> None:
        """Note a round, and how many other replies shared its passes; the prompt's own token is none."""
        if not done.is_first:
            job.rounds.append(done)
            job.others[max(0, self._assistant.running - 1)] += 1

    def abandon(self, error: Exception) -> None:
        """End everything that is being answered without a reply."""
        for number in list(self._under_way):
            del self._under_way[number]
            self._assistant.drop(number)
            self._send(failure(number, error))

    def answer(self, question: Count | Tokenize | Detokenize) -> Counted | Tokens:
        """Answer what needs no pass."""
        models = self._assistant.models
        if isinstance(question, Count):
            _require_question(question.messages)
            tokens = self._length(question, question.messages)
            return Counted(question.id, tokens, models.target.n_ctx)
        if isinstance(question, Tokenize):
            special = question.add_special
            ids = models.tokenizer.tokenize(question.text, add_special=special, parse_special=True)
        else:
            ids = models.checked_ids(question.tokens)
        pieces = (models.tokenizer.piece(each, special=True) for each in ids)
        return Tokens(question.id, tuple(ids), tuple(each.decode("latin-1") for each in pieces))

    def close(self) -> None:
        """Free the models."""
        self._assistant.close()

    def _end(self, job: _Running, event: Finished | RequestFailed) -> None:
        self._assistant.models.check()
        number = job.request.id
        del self._under_way[number]
        if isinstance(event, RequestFailed):
            self._send(failure(number, event.error))
            return
        ((others, _),) = job.others.most_common(1) or [(0, 0)]
        costs, drafter = self._loaded.costs, event.reply.drafter
        self._send(
            msgspec.structs.replace(
                event,
                id=number,
                dropped_turns=job.dropped,
                reason=reason(job.rounds, drafter, others, costs, self._chance),
                draft_note=draft_note(job.rounds, costs, self._chance),
                no_drafting=no_drafting(event.reply.acceptance, drafter, costs, others),
                widths=tuple(sorted(self._assistant.widths.items())),
            )
        )
        self._assistant.widths.clear()
        self._chance = chance_of_acceptance(by_draft_model(job.rounds)) or self._chance

    def _length(self, asked: Request | Count, messages: Sequence[Message]) -> int:
        """Return how many tokens these messages have, asked so."""
        request = Request(0, tuple(messages), tools=asked.tools, owner=asked.owner)
        conversation = self._assistant.known.conversation(request)
        return len(self._assistant.prompt_tokens(conversation, asked.options, asked.owner))


def failure(number: int | None, error: Exception) -> Failed:
    """Return the notice of an error; a fault of ours goes to stderr, too."""
    if isinstance(error, LocalspecError | FrameError):
        return Failed.of(number, error)
    with suppress(Exception):  # stderr may be gone
        traceback.print_exception(error, file=sys.stderr)
    try:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    except Exception:
        reason = type(error).__name__
    return Failed(number, "Fault", f"this is a bug in localspec, report it ({reason})")


def _require_question(messages: Sequence[Message]) -> None:
    if all(each.role == "system" for each in messages):
        raise UsageError("the conversation has nothing to answer: say something first")
