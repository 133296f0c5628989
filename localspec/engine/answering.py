"""Answering: one conversation after the other with the same models, told in the protocol's words."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localspec.chat.conversation import Conversation, Segment
from localspec.chat.conversation import Message as Said
from localspec.chat.events import Finished
from localspec.chat.thinking import tag_pieces, thinking_tags
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.policy import FixedPolicy
from localspec.engine.account import Account, finished
from localspec.engine.factory import Loaded, SavedState
from localspec.engine.forecast import Forecast, chance_of_acceptance, forecast
from localspec.engine.protocol import (
    Ask,
    Message,
    Prefilling,
    RoundFigures,
    Span,
    Started,
    Streamed,
    Turn,
)
from localspec.engine.shortening import dropped_to_fit
from localspec.errors import UsageError
from localspec.options import ReplyOptions

_NO_DRAFTING = FixedPolicy(NoDrafter(), 0)


class Answering:
    """Answers with what is loaded, and remembers the ids of what was said.

    Args:
        loaded: the models.
        tell: says something to the client; never waits.
    """

    def __init__(self, loaded: Loaded, tell: Callable[[Message], None]) -> None:
        self._loaded = loaded
        self._assistant = loaded.assistant
        self._tell = tell
        self._remembered: tuple[Segment, ...] = ()
        self._chance: float | None = None

    @property
    def target_name(self) -> str:
        """How the target is called."""
        return self._assistant.models.target_name

    def answer(self, request: Ask) -> None:
        """Answer a conversation; see `Ask`."""
        options = request.options
        turns = _checked(request.turns)
        target = self._assistant.models.target
        dropped = 0
        if request.drop_oldest:
            dropped = dropped_to_fit(turns, target.n_ctx, options.max_tokens, self._length)
            system = turns[:1] if turns[0].role == "system" else ()
            turns = (*system, *turns[len(system) + dropped :])
        conversation = self._conversation(turns)
        tokens = conversation.prompt_tokens(
            self._assistant.template, self._assistant.models.tokenizer
        )
        if request.keep is not None:
            self._cut_caches(request.keep)
        cached = min(target.common_prefix(tokens), len(tokens) - 1) if tokens else 0
        self._tell(Started(request.id, len(tokens), cached, dropped))
        with self._prefill_watched(request.id), self._drafting(request.draft):
            self._stream(request.id, conversation, options)
        if not request.aside:
            self._remembered = conversation.remembered

    def count(self, turns: Sequence[Turn]) -> tuple[int, int]:
        """Return how many tokens a conversation takes, and how many the context holds."""
        return self._length(_checked(turns)), self._assistant.models.target.n_ctx

    def save(self, directory: Path) -> SavedState:
        """Write what is evaluated; raises StateLeftError."""
        return self._loaded.save(directory, self._remembered)

    def restore(self, directory: Path) -> int:
        """Put back what was evaluated, return how many tokens that are; raises StateLeftError."""
        restored = self._loaded.restore(directory)
        self._remembered = restored.remembered
        return restored.tokens

    def close(self) -> None:
        """Free the models."""
        self._assistant.close()

    def _stream(self, number: int, conversation: Conversation, options: ReplyOptions) -> None:
        models = self._assistant.models
        tags = thinking_tags(self._assistant.template.source)
        pieces = tag_pieces(tags, models.tokenizer)
        account = Account(models.tokenizer, pieces, models.eog, conversation.begun)
        for event in self._assistant.stream(conversation, options, watch=account.note):
            if isinstance(event, Finished):
                self._tell(Streamed(number, (), *account.taken()))
                looked_back = self._looked_back(account.rounds)
                self._tell(finished(number, event.reply, conversation.messages[-1], looked_back))
            else:
                spans = (Span(event.text, event.thinking),)
                self._tell(Streamed(number, spans, *account.taken()))

    def _looked_back(self, rounds: Sequence[RoundFigures]) -> Forecast | None:
        """Say what drafting gained, and learn from it what to expect where it is off."""
        costs = self._loaded.costs
        if costs is None or not rounds:
            return None
        looked_back = forecast(rounds, costs, self._chance)
        self._chance = chance_of_acceptance(rounds, "model") or self._chance
        return looked_back

    def _conversation(self, turns: Sequence[Turn]) -> Conversation:
        messages = [Said(turn.role, turn.content, turn.thinking) for turn in turns]
        return Conversation(messages=messages, remembered=self._remembered)

    def _length(self, turns: Sequence[Turn]) -> int:
        conversation = self._conversation(turns)
        template, tokenizer = self._assistant.template, self._assistant.models.tokenizer
        return len(conversation.prompt_tokens(template, tokenizer))

    def _cut_caches(self, n_past: int) -> None:
        for model in (self._assistant.models.target, self._assistant.models.draft_model):
            if model is not None:
                model.truncate(n_past)

    @contextmanager
    def _prefill_watched(self, number: int) -> Iterator[None]:
        self._loaded.watch_prefill(lambda done, total: self._tell(Prefilling(number, done, total)))
        try:
            yield
        finally:
            self._loaded.watch_prefill(None)

    @contextmanager
    def _drafting(self, wanted: bool) -> Iterator[None]:
        usual = self._assistant.policy
        if not wanted:
            self._assistant.policy = _NO_DRAFTING
        try:
            yield
        finally:
            self._assistant.policy = usual


def _checked(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    if not turns or turns[-1].role == "system":
        raise UsageError("the conversation has nothing to answer: say something first")
    return tuple(turns)
