"""LocalEngine: the models are in this process."""

# ruff: noqa: PLC0415 - what answers is imported while weights are loaded

import math
import re
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.engine import Engine, OnProgress, Signals
from localspec.engine.protocol import Downloading, Embed, Load, Notice, Question, Ready
from localspec.errors import ContextOverflow, Interrupted, LocalspecError, ModelChanged
from localspec.llama.crash_report import report_a_kill
from localspec.llama.model import LlamaModel, ModelThread, taking_turns
from localspec.media import picture_size, sound_seconds
from localspec.messages import MediaPart
from localspec.plan.decide import Wish
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import decided, gathered

if TYPE_CHECKING:
    from localspec.engine.request_runner import RequestRunner
    from localspec.launch.load import Runtime
    from localspec.launch.observe import Telemetry

ANSWER_TOKENS = 2048
"""Tokens of an answer without a limit."""
_AROUND = 256
"""What a template adds, at most, as far as was seen."""
_MEDIUM_TOKENS = 1024
"""What a picture takes, or a sound, mostly."""
_PATCH = 28
"""Sides in pixels of what becomes a token of a picture, where that depends on its size."""
_CLIP_S, _CLIP_TOKENS = 30, 750
"""Sounds are encoded in clips of this length."""
_TOOLS_TOKENS = 4096
"""Descriptions of tools and what they return."""
_CHARS_PER_TOKEN = 3
# Many vocabularies have a token for each digit, sign and character of another script.
_DENSE = re.compile(r"[^A-Za-z\s]")


class LocalEngine(Engine):
    """Answers with what is loaded here.

    Args:
        plan: what it loads.
        wish: of which it is the plan.
        progress: gets how far loading is.
        notify: prints what is wrong with recording.
    """

    plan: LoadPlan

    def __init__(
        self, plan: LoadPlan, wish: Load, progress: OnProgress, notify: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.plan, self._wish = plan, wish
        self._progress, self._notify = progress, notify
        self._cancel = CancelFlag()
        self._telemetry: Telemetry | None = None
        self._runner: RequestRunner | None = None
        self._runtime: Runtime | None = None
        self._notices: deque[Notice] = deque()

    async def loaded(self) -> Ready:
        """Return what is loaded; loads it at the first call. See `Engine.loaded`."""
        if self._ready is None:
            weights = None if self.plan.plain is not None else ModelThread(self._target)
            with taking_turns():
                from localspec.engine.request_runner import RequestRunner, ready_of
                from localspec.launch.load import load as load_plan
                from localspec.launch.observe import Telemetry

            self._telemetry = Telemetry(self._wish.workload)
            try:
                runtime = load_plan(
                    self.plan,
                    self._cancel,
                    self._progress,
                    observe=self._telemetry.observe,
                    prompt_cache=self._wish.options.prompt_cache,
                    at_once=True,
                    weights=weights,
                )
            except Cancelled:
                raise Interrupted("loading was stopped") from None
            self._runtime, self._runner = runtime, RequestRunner(runtime, self._notices.append)
            self._ready, self.parallel = ready_of(runtime), runtime.assistant.count
        return self.ready

    def _target(self, report: Callable[[float], None]) -> LlamaModel:
        plan, path = self.plan, self.plan.target
        mtp = plan.heads is not None and plan.heads.is_mtp
        return LlamaModel(path, plan.options, self._cancel, report, mtp=mtp, **plan.told(path))

    def stop(self) -> None:
        """End loading, and all answers with what there is of them, also in the middle of a pass."""
        self.stopped = True
        self._cancel.set()

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        if self._runner is not None:
            self._runner.cancel(number)

    def require_template(self) -> None:
        """Raise TemplateError where no conversation can be rendered."""
        if self._runtime is not None:
            _ = self._runtime.assistant.template

    def close(self) -> None:
        """Free the models."""
        if self._runner is None:
            return
        self._runner.close()
        if self._telemetry is not None and self._telemetry.trouble is not None:
            self._notify(self._telemetry.trouble)

    def _submit(self, question: Question) -> None:
        try:
            if self._runner is None:
                _ = self.ready  # which says that nothing is loaded
            elif isinstance(question, Request | Embed):
                self._runner.submit(question)
            else:
                self._notices.append(self._runner.answer(question))
        except LocalspecError as error:
            from localspec.engine.request_runner import failure

            self._notices.append(failure(question.id, error))

    def _receive(self) -> None:
        while not self._notices:
            assert self._runner is not None, "else nothing was asked"  # noqa: S101
            try:
                self._runner.step()
            except ModelChanged as error:
                self._runner.abandon(error)
        self._deliver(self._notices.popleft())


def local_engine(
    wish: Load,
    prompt: Request | None,
    progress: OnProgress,
    signals: Signals,
    notify: Callable[[str], None],
) -> LocalEngine:
    """Return an engine in this process, see `open_engine`; where no context was asked for, one that the prompt fits into."""
    report_a_kill()
    return LocalEngine(planned(wish, prompt, progress, signals), wish, progress, notify)


def planned(wish: Load, prompt: Request | None, progress: OnProgress, signals: Signals) -> LoadPlan:
    """Return the plan of a wish, once its files are here, see `make_plan`.

    Args:
        wish: what to load, and how.
        prompt: what is asked first; where no context was asked for, it fits with its answer, as far as there is memory.
        progress: gets how far a download is.
        signals: how the user ends it.

    Raises:
        ContextOverflow: there is no memory for the prompt.
    """
    least = 0 if prompt is None else guessed_context(prompt, tools=wish.calls)
    request = Wish(wish.options, wish.parallel, least_ctx=least)
    with signals.planning():
        facts = gathered(request, lambda moment: progress(Downloading(*astuple(moment))))
        plan = decided(facts, request)
        most = facts.target.n_ctx_train or 0
        n_ctx = plan.options.context
        fixed = request.launch.load.n_ctx is not None or n_ctx >= most
        if prompt is None or fixed or not may_need_more(prompt, n_ctx):
            return plan
        tokens = prompt_length(plan, prompt)
        needed = tokens + (prompt.options.max_tokens or ANSWER_TOKENS)
        if needed > n_ctx:
            plan = decided(facts, replace(request, least_ctx=needed))
            n_ctx = plan.options.context
        if n_ctx <= tokens:
            raise ContextOverflow(
                f"the prompt has {tokens} tokens and free memory holds a context of {n_ctx}: shorten it, or free memory"
            )
        return plan


def prompt_length(plan: LoadPlan, request: Request) -> int:
    """Return how many tokens a prompt has, its pictures and sounds as many as they mostly do; loads the vocabulary alone."""
    from localspec.chat.template import ChatTemplate
    from localspec.chat.token_prefix import KnownConversations
    from localspec.chat.tokenizer import raw_tokens

    model = LlamaModel(plan.target, plan.options, bare=True, **plan.told(plan.target))
    try:
        vocabulary = model.vocabulary
        if isinstance(request.raw, str):
            return len(raw_tokens(request.raw, vocabulary))
        template = ChatTemplate(
            model.chat_template,
            vocabulary.bos_text,
            vocabulary.eos_text,
            model=plan.names[plan.target],
            for_tools=model.tool_template,
        )
        conversation, asked = KnownConversations(1).conversation(request), request.options

        def media(part: MediaPart) -> list[int]:
            return [vocabulary.placeholder] * _tokens_of(part, plan.encoder.most_tokens)

        return len(conversation.prompt_tokens(template.asked(asked), vocabulary, media))
    finally:
        model.close()


def _tokens_of(part: MediaPart, most: int) -> int:
    """Return how many tokens a picture or a sound has, rather too many; how many exactly only its encoder knows."""
    if part.kind == "audio":
        return _CLIP_TOKENS * math.ceil((sound_seconds(part.data) or _CLIP_S) / _CLIP_S)
    width, height = picture_size(part.data, part.name)
    return min(most, math.ceil(width / _PATCH) * math.ceil(height / _PATCH))


def _text(request: Request) -> str:
    return str(request.raw or "".join(each.text for each in request.messages))


def _beside_text(request: Request) -> int:
    """Return the tokens of context that pictures, sounds and the answer need, about."""
    media = _MEDIUM_TOKENS * sum(len(each.media) for each in request.messages)
    return media + _AROUND + (request.options.max_tokens or ANSWER_TOKENS)


def guessed_context(request: Request, *, tools: bool = False) -> int:
    """Return about how many tokens of context a prompt and its answer need; rather too many."""
    text = _text(request)
    others = len(_DENSE.sub("", text))
    guess = len(text) - others + others // _CHARS_PER_TOKEN
    return guess + _beside_text(request) + tools * _TOOLS_TOKENS


def may_need_more(request: Request, n_ctx: int) -> bool:
    """Return whether a prompt may need more than a context holds: no token of a text is shorter than a byte."""
    has_media = any(each.media for each in request.messages)
    return has_media or len(_text(request).encode()) + _beside_text(request) > n_ctx
