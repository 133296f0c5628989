"""LocalEngine: the models are in this process."""

# ruff: noqa: PLC0415 - what answers is imported while weights are loaded

from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from localspec.chat.request import Request
from localspec.chat.tokenizer import (
    ANSWER_TOKENS,
    guessed_context,
    may_need_more,
    media_tokens,
    raw_tokens,
)
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.engine import Engine, OnProgress, Signals
from localspec.engine.protocol import Downloading, Embed, Load, Notice, Question, Ready
from localspec.errors import ContextOverflow, Interrupted, LocalspecError, ModelChanged
from localspec.llama.crash_report import report_a_kill
from localspec.llama.model import LlamaModel, ModelThread, taking_turns
from localspec.messages import MediaPart
from localspec.plan.decide import Wish
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import decided, gathered

if TYPE_CHECKING:
    from localspec.engine.request_runner import RequestRunner
    from localspec.launch.load import Runtime
    from localspec.launch.observe import Telemetry


class LocalEngine(Engine):
    """Answers with what is loaded here.

    Args:
        wish: what it loads, once `loaded` is awaited; planned at once, see `planned` for what that raises.
        prompt: as there.
        progress: gets how far downloads and loading are.
        signals: as there.
        notify: prints what is wrong with recording.

    Attributes:
        plan: of what it loads.
    """

    plan: LoadPlan

    def __init__(
        self,
        wish: Load,
        prompt: Request | None,
        progress: OnProgress,
        signals: Signals,
        notify: Callable[[str], None],
    ) -> None:
        report_a_kill()
        super().__init__()
        self.plan, self._wish = planned(wish, prompt, progress, signals), wish
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
        tokens = 0 if prompt is None or fixed else prompt_length(plan, prompt)
        if prompt is None or not tokens:
            return plan
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
    """Return how many tokens a prompt has, its pictures and sounds as many as they mostly do; 0 where they fit in any case.

    Loads the vocabulary alone.
    """
    if not may_need_more(request, plan.options.context):
        return 0
    from localspec.chat.template import ChatTemplate
    from localspec.chat.token_prefix import KnownConversations

    told = plan.told(plan.target)
    with closing(LlamaModel(plan.target, plan.options, bare=True, **told)) as model:
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
            return [vocabulary.placeholder] * media_tokens(part, plan.encoder.most_tokens)

        return len(conversation.prompt_tokens(template.asked(asked), vocabulary, media))
