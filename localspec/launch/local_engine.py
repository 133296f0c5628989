"""LocalEngine: the models are in this process."""

from collections import deque
from collections.abc import Callable
from dataclasses import astuple

import msgspec

from localspec.chat.assistant import Assistant
from localspec.chat.request import Request
from localspec.chat.tokenizer import raw_tokens
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.answering import Answering, Loaded, failure
from localspec.engine.engine import Engine, FirstRequest, Interrupted, OnProgress, Signals
from localspec.engine.protocol import (
    Count,
    Counted,
    Detokenize,
    Downloading,
    Load,
    Loading,
    Measuring,
    Notice,
    Question,
    Tokenize,
)
from localspec.errors import ContextOverflow, LocalspecError
from localspec.launch.child import loaded, telemetry
from localspec.launch.context_size import ANSWER_TOKENS, guessed_context, may_need_more
from localspec.launch.kept_prefixes import common, keeper
from localspec.launch.load import Runtime
from localspec.launch.load import load as load_plan
from localspec.launch.plan import LoadPlan, make_plan
from localspec.messages import Message


class LocalEngine(Engine):
    """Answers with what is loaded here.

    Args:
        runtime: what is loaded.
        models: likewise, as the child's engine has it.
        cancel: stops every pass.
        trouble: returns what is wrong with recording, None while nothing is.
        notify: prints that.
        keep: keep what is evaluated of descriptions of tools, which are read at every start.
    """

    def __init__(
        self,
        runtime: Runtime,
        models: Loaded,
        cancel: CancelFlag,
        trouble: Callable[[], str | None],
        notify: Callable[[str], None],
        *,
        keep: bool = False,
    ) -> None:
        super().__init__(models.ready(), models.assistant.count)
        self._runtime = runtime
        self._cancel = cancel
        self._trouble = trouble
        self._notify = notify
        self._keep = keep
        self._last: Request | None = None
        self._notices: deque[Notice] = deque()
        self._answering = Answering(models, self._notices.append)

    def stop(self) -> None:
        """End all answers with what there is of them, also in the middle of a pass."""
        self._stopped = True
        self._cancel.set()

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        self._answering.cancel(number)

    def require_template(self) -> None:
        """Raise TemplateError where no conversation can be rendered."""
        _ = self._runtime.assistant.template

    def close(self) -> None:
        """Free the models."""
        try:
            if self._keep and self._last is not None and not self._last.raw:
                known = before_question(self._runtime.assistant, self._last)
                self._runtime.target.truncate(known)
        finally:
            self._answering.close()
        if (trouble := self._trouble()) is not None:
            self._notify(trouble)

    @property
    def n_ctx(self) -> tuple[int, int]:
        """Tokens of context, and the most that the target was trained for."""
        target = self._runtime.target
        return target.n_ctx, target.model.n_ctx_train

    def prompt_length(self, request: Request) -> int:
        """Return how many tokens a prompt has."""
        assistant = self._runtime.assistant
        if request.raw is not None:
            return len(raw_tokens(request.raw, assistant.models.tokenizer))
        return len(assistant.prompt_tokens(assistant.known.conversation(request)))

    def _submit(self, question: Question) -> None:
        try:
            match question:
                case Request():
                    self._last = question
                    self._answering.submit(question)
                case Count(id=number, messages=messages, tools=tools):
                    tokens, n_ctx = self._answering.count(messages, tools)
                    self._notices.append(Counted(number, tokens, n_ctx))
                case Tokenize():
                    self._notices.append(self._answering.tokenize(question))
                case Detokenize(id=number, tokens=ids):
                    self._notices.append(self._answering.spell(number, ids))
        except LocalspecError as error:
            self._notices.append(failure(question.id, error))

    def _receive(self) -> None:
        while not self._notices:
            self._answering.step()
        self._deliver(self._notices.popleft())


def before_question(assistant: Assistant, request: Request) -> int:
    """Return how many tokens of a prompt come before its question: what it says of tools, mostly, which is read at every start."""
    system = [each for each in request.messages if each.role == "system"]

    def tokens(question: str) -> list[int]:
        this = msgspec.structs.replace(request, messages=(*system, Message.user(question)))
        return assistant.prompt_tokens(assistant.known.conversation(this))

    return common(tokens("a"), tokens("b"))


def local_engine(
    load: Load,
    progress: OnProgress,
    signals: Signals,
    plan: LoadPlan | None,
    first: FirstRequest | None,
    notify: Callable[[str], None],
) -> LocalEngine:
    """Return an engine in this process, see `open_engine`."""
    options, request = load.options, None if first is None else first.request()
    max_tokens = None if request is None else request.options.max_tokens
    text = "" if first is None else first.text

    def planned(least_ctx: int) -> LoadPlan:
        with signals.planning():
            return make_plan(
                options,
                lambda moment: progress(Downloading(*astuple(moment))),
                parallel=load.parallel,
                least_ctx=least_ctx,
            )

    def loaded_engine(plan: LoadPlan) -> LocalEngine:
        cancel, observer = CancelFlag(), telemetry(load.workload)
        try:
            with signals.running(cancel.set):
                runtime = load_plan(
                    plan,
                    cancel,
                    lambda name, share: progress(Loading(name, share)),
                    lambda name, share: progress(Measuring(name, share)),
                    parallel=load.parallel,
                    observe=observer.observe if observer else None,
                    keep=keeper(plan.target) if load.keep else None,
                )
        except Cancelled:
            raise Interrupted("loading was stopped") from None
        models = loaded(runtime, plan.target)
        return LocalEngine(
            runtime,
            models,
            cancel,
            lambda: observer.trouble if observer else None,
            notify,
            keep=load.keep,
        )

    if request is not None:
        guess = guessed_context(text, max_tokens, tools=bool(load.keep))
        plan = planned(guess)
    engine = loaded_engine(plan or planned(0))
    if request is None or options.load.n_ctx is not None:
        return engine
    n_ctx, most = engine.n_ctx
    if not may_need_more(text, max_tokens, n_ctx) or n_ctx >= most:
        return engine
    tokens = engine.prompt_length(request)
    needed = tokens + (max_tokens or ANSWER_TOKENS)
    if needed <= n_ctx:
        return engine
    plan = planned(needed)
    n_ctx = plan.options.n_ctx or 0
    if n_ctx <= tokens:
        raise ContextOverflow(
            f"the prompt has {tokens} tokens and free memory holds a context of {n_ctx}: shorten it, or free memory"
        )
    engine.close()
    return loaded_engine(plan)
