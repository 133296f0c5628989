"""Assistant: a conversation goes in, events come out. Receives models as protocols, never llama.cpp."""

import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from localspec.chat.answer_constraint import answer_constraint
from localspec.chat.conversation import Conversation, raw_tokens
from localspec.chat.events import Event, Finished, Reply
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.reply_progress import Watch
from localspec.chat.reply_text import ReplyText
from localspec.chat.replying import Replying
from localspec.chat.stop_strings import StopStrings
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import ThinkingFilter, tag_pieces, thinking_tags
from localspec.chat.tracing import Tracer
from localspec.decoding.choose import Chooser
from localspec.decoding.generate import Generation, Limits
from localspec.decoding.model import LanguageModel, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import Policy
from localspec.decoding.serve import serve
from localspec.decoding.timings import Timings
from localspec.errors import ContextOverflow, UsageError
from localspec.options import ReplyOptions, SamplingParams

_SEED_BITS = 32  # short enough to be copied by hand


class Assistant:
    """Answers prompts and conversations, one at a time.

    Args:
        models: what to answer with.
        policy: which drafter to use and how far; never changes the text.
        notes: what the user should know of how it was set up, a sentence each.
        load_s: seconds that loading took.
        clock: seconds, monotonic.

    Attributes:
        tracer: writes down how replies come about; None by default.
    """

    def __init__(
        self,
        models: LoadedModels,
        policy: Policy,
        *,
        notes: tuple[str, ...] = (),
        load_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.models = models
        self.policy = policy
        self.notes = notes
        self.load_s = load_s
        self._clock = clock
        self.tracer: Tracer | None = None

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
        )

    def reply(
        self, prompt: str | Conversation, options: ReplyOptions | None = None, *, raw: bool = False
    ) -> Reply:
        """Answer, and return when the answer is complete; see `stream`."""
        for event in self.stream(prompt, options, raw=raw):
            if isinstance(event, Finished):
                return event.reply
        raise AssertionError("a stream of events ends with Finished")

    def stream(
        self,
        prompt: str | Conversation,
        options: ReplyOptions | None = None,
        *,
        raw: bool = False,
        watch: Watch | None = None,
    ) -> Iterator[Event]:
        """Answer, yielding text as it is confirmed and `Finished` at the end.

        Args:
            prompt: a text, or a conversation; it gets the reply appended before `Finished` comes. Where its last
                turn is the assistant's, that turn goes on: the reply is what is new of it.
            options: how to answer.
            raw: let a text go to the model as it is, without the chat template.
            watch: sees every round, before the text that it gives is yielded.

        Raises:
            ContextOverflow: the prompt leaves no room for an answer.
            TemplateError: the template is missing, or does not render.
            PassFailed: llama.cpp failed in the middle, or a grammar lets nothing follow that the model can write.
            UsageError: the options ask for a grammar that this reply cannot have.
        """
        replying = self.begin(prompt, options, raw=raw, watch=watch)
        models = self.models_in_use()
        while (chunks := serve(replying.advance(), models)) is not None:
            yield from chunks
        yield from replying.flush()
        yield Finished(replying.finish())

    def begin(
        self,
        prompt: str | Conversation,
        options: ReplyOptions | None = None,
        *,
        raw: bool = False,
        watch: Watch | None = None,
    ) -> Replying:
        """Return a reply in the making, which asks for its passes; see `stream` for everything else."""
        start = self._clock()
        options = ReplyOptions() if options is None else options
        conversation = _as_conversation(prompt, raw=raw)
        if conversation is None:
            tokens = raw_tokens(str(prompt), self.models.tokenizer)
        else:
            tokens = conversation.prompt_tokens(self.template, self.models.tokenizer)
        self._require_room(len(tokens))
        seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
        timings = Timings(self._clock)
        generation = Generation(
            tokens,
            self.models_in_use(),
            self.policy,
            Chooser(
                self._sampling(options.sampling),
                Noise(seed),
                answer_constraint(options, self.models, conversation, len(tokens)),
            ),
            Limits(options.max_tokens, self.models.eog),
            timings,
        )
        greedy = options.sampling.temperature == 0
        trace = None
        if self.tracer is not None:
            trace = self.tracer.begin(_asked(prompt), tokens, greedy=greedy)
        watches = (watch, None if trace is None else trace.note)
        return Replying(
            prompt=tokens,
            conversation=conversation,
            seed=seed,
            start=start,
            generation=generation,
            target=self.models.target,
            eog=self.models.eog,
            text=self._reply_text(conversation, options),
            timings=timings,
            drafter=self.policy.drafter_name,
            watches=[each for each in watches if each is not None],
            trace=trace,
        )

    def models_in_use(self) -> dict[Role, LanguageModel]:
        """Return the models that make the passes of a reply."""
        used = {Role.TARGET: self.models.target}
        if self.models.draft_model is not None and self.policy.uses_draft_model:
            used[Role.DRAFT_MODEL] = self.models.draft_model
        return used

    def close(self) -> None:
        """Free the models."""
        self.models.close()

    def _sampling(self, wanted: SamplingParams) -> SamplingParams:
        """Add what the target's file forbids to what the user wants."""
        if not self.models.suppressed:
            return wanted
        forbidden = tuple((token, -math.inf) for token in self.models.suppressed)
        return replace(wanted, logit_bias=(*wanted.logit_bias, *forbidden))

    def _reply_text(self, conversation: Conversation | None, options: ReplyOptions) -> ReplyText:
        tokenizer = self.models.tokenizer
        if conversation is None:
            thinking, pieces = ThinkingFilter(()), {}
        else:
            thinking = conversation.thinking_filter()
            pieces = tag_pieces(thinking_tags(self.template.source), tokenizer)
        begun = () if conversation is None else conversation.begun
        return ReplyText(tokenizer, thinking, StopStrings(options.stop), pieces, begun)

    def _require_room(self, n_tokens: int) -> None:
        n_ctx = self.models.target.n_ctx
        if n_tokens == 0:
            raise UsageError("the prompt has no tokens: write something")
        if n_tokens >= n_ctx:
            raise ContextOverflow(
                f"the prompt has {n_tokens} tokens and the context holds {n_ctx}: "
                "shorten it, or raise --ctx"
            )


def _asked(prompt: str | Conversation) -> str:
    """Return what the user said last."""
    if isinstance(prompt, str):
        return prompt
    said = (message.content for message in reversed(prompt.messages) if message.role == "user")
    return next(said, "")


def _as_conversation(prompt: str | Conversation, *, raw: bool) -> Conversation | None:
    if isinstance(prompt, Conversation):
        return prompt
    if raw:
        return None
    conversation = Conversation()
    conversation.append_user(prompt)
    return conversation
