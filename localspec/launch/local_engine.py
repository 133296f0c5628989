"""LocalEngine: the models are in this process."""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import astuple

import msgspec

from localspec.chat.assistant import Assistant
from localspec.chat.request import Request
from localspec.chat.tokenizer import raw_tokens
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.answering import Answering, failure, ready_of
from localspec.engine.engine import Engine, FirstRequest, Interrupted, OnProgress, Signals
from localspec.engine.protocol import (
    Downloading,
    Embed,
    Load,
    Notice,
    Question,
)
from localspec.errors import ContextOverflow, LocalspecError, ModelChanged
from localspec.launch.kept_prefixes import common
from localspec.launch.load import Runtime
from localspec.launch.load import load as load_plan
from localspec.launch.observe import Telemetry
from localspec.launch.plan import LoadPlan, make_plan
from localspec.messages import Message
from localspec.models.transfer import Progress as Transfer

ANSWER_TOKENS = 2048
"""Tokens of an answer without a limit."""
_AROUND = 256
"""What a template adds, at most, as far as was seen."""
_MEDIUM_TOKENS = 1024
"""What a picture takes, or a sound, mostly; how many it does is known once the model is loaded."""
_TOOLS_TOKENS = 4096
"""Descriptions of tools and what they return."""
_CHARS_PER_TOKEN = 3
# Many vocabularies have a token for each digit, sign and character of another script.
_DENSE = re.compile(r"[^A-Za-z\s]")


class LocalEngine(Engine):
    """Answers with what is loaded here.

    Args:
        runtime: what is loaded.
        cancel: stops every pass.
        telemetry: records replies.
        notify: prints what is wrong with that.
        keep: keep what is evaluated of descriptions of tools, which are read at every start.
    """

    def __init__(
        self,
        runtime: Runtime,
        cancel: CancelFlag,
        telemetry: Telemetry,
        notify: Callable[[str], None],
        *,
        keep: bool = False,
    ) -> None:
        super().__init__(ready_of(runtime), runtime.assistant.count)
        self._runtime = runtime
        self._cancel = cancel
        self._telemetry = telemetry
        self._notify = notify
        self._keep = keep
        self._last: Request | None = None
        self._notices: deque[Notice] = deque()
        self._answering = Answering(runtime, self._notices.append)

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
        if self._telemetry.trouble is not None:
            self._notify(self._telemetry.trouble)

    @property
    def n_ctx(self) -> tuple[int, int]:
        """Tokens of context, and the most that the target was trained for."""
        target = self._runtime.target
        return target.n_ctx, target.model.n_ctx_train

    def prompt_length(self, request: Request) -> int:
        """Return how many tokens a prompt has."""
        assistant = self._runtime.assistant
        if isinstance(request.raw, str):
            return len(raw_tokens(request.raw, assistant.models.tokenizer))
        conversation = assistant.known.conversation(request)
        return len(assistant.prompt_tokens(conversation, request.options))

    def _submit(self, question: Question) -> None:
        try:
            if isinstance(question, Request):
                self._last = question
            if isinstance(question, Request | Embed):
                self._answering.submit(question)
            else:
                self._notices.append(self._answering.answer(question))
        except LocalspecError as error:
            self._notices.append(failure(question.id, error))

    def _receive(self) -> None:
        while not self._notices:
            try:
                self._answering.step()
            except ModelChanged as error:
                self._answering.abandon(error)
        self._deliver(self._notices.popleft())


def before_question(assistant: Assistant, request: Request) -> int:
    """Return how many tokens of a prompt come before its question: what it says of tools, mostly, which is read at every start."""
    system = [each for each in request.messages if each.role == "system"]

    def tokens(question: str) -> list[int]:
        this = msgspec.structs.replace(request, messages=(*system, Message.user(question)))
        return assistant.prompt_tokens(assistant.known.conversation(this), this.options)

    return common(tokens("a"), tokens("b"))


def local_engine(
    load: Load,
    progress: OnProgress,
    signals: Signals,
    plan: LoadPlan | None,
    first: FirstRequest | None,
    notify: Callable[[str], None],
) -> LocalEngine:
    """Return an engine in this process, see `open_engine`; where no context was asked for, one that the first request fits into."""

    def planned(least_ctx: int = 0) -> LoadPlan:
        def fetched(moment: Transfer) -> None:
            progress(Downloading(*astuple(moment)))

        with signals.planning():
            return make_plan(load.options, fetched, parallel=load.parallel, least_ctx=least_ctx)

    def opened(plan: LoadPlan) -> LocalEngine:
        cancel, telemetry = CancelFlag(), Telemetry(load.workload)
        try:
            with signals.running(cancel.set):
                runtime = load_plan(
                    plan,
                    cancel,
                    progress,
                    parallel=load.parallel,
                    observe=telemetry.observe,
                    keep=load.keep,
                )
        except Cancelled:
            raise Interrupted("loading was stopped") from None
        return LocalEngine(runtime, cancel, telemetry, notify, keep=load.keep)

    if first is None:
        return opened(plan or planned())
    request = first.request()
    max_tokens = request.options.max_tokens
    media = _MEDIUM_TOKENS * sum(len(each.media) for each in request.messages)
    engine = opened(planned(media + guessed_context(first.text, max_tokens, tools=load.keep)))
    n_ctx, most = engine.n_ctx
    fixed = load.options.load.n_ctx is not None or n_ctx >= most
    if fixed or not (media or may_need_more(first.text, max_tokens, n_ctx)):
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
    return opened(plan)


def guessed_context(text: str, max_tokens: int | None, *, tools: bool = False) -> int:
    """Return about how many tokens of context a prompt and its answer need; rather too many."""
    others = len(_DENSE.sub("", text))
    guess = len(text) - others + others // _CHARS_PER_TOKEN
    return guess + _AROUND + (max_tokens or ANSWER_TOKENS) + tools * _TOOLS_TOKENS


def may_need_more(text: str, max_tokens: int | None, n_ctx: int) -> bool:
    """Return whether a prompt may need more than a context holds: no token is shorter than a byte."""
    return len(text.encode()) + _AROUND + (max_tokens or ANSWER_TOKENS) > n_ctx
