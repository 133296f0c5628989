"""What `localspec run` does where nobody has the model in memory: it loads it, and answers."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Reply
from localspec.chat.request import Request
from localspec.chat.tokenizer import raw_tokens
from localspec.cli.context_size import ANSWER_TOKENS, guessed_context, may_need_more
from localspec.cli.hands import Stream, wants_tools
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.output import ProgressLine
from localspec.cli.recorded import recorded
from localspec.cli.report import RunOutcome
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.forecast import no_drafting
from localspec.errors import ContextOverflow
from localspec.launch.load import Runtime, load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import LoadPlan, make_plan
from localspec.messages import Message
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions


def answered_here(
    request: LaunchOptions,
    asked: Callable[..., Request],
    flags: dict[str, Any],
    tell: Callable[..., None],
    answer: Callable[[Request, Stream, Callable[[], bool]], Reply],
    prompt: str,
) -> RunOutcome | None:
    """Load, and answer; return None where it was interrupted before it was loaded.

    Args:
        request: what to load.
        asked: returns the request; called when it is loaded, and with `save=False` before.
        flags: of the verb.
        tell: says sentences to the user.
        answer: has a question answered and written, with all that is called on the way.
        prompt: all that is asked, by which the context is sized.
    """
    cancel = CancelFlag()
    line = ProgressLine(enabled=not flags["quiet"])
    least_ctx = guessed_context(prompt, flags["max_tokens"], tools=wants_tools(flags))
    try:
        with line:
            plan = _planned(request, least_ctx, line, tell)
            runtime, telemetry = _loaded(plan, flags, cancel, line)
            tokens, needed = _counted_context(runtime, asked, prompt)
            if needed and request.load.n_ctx is None:
                plan = _planned(request, needed, line, tell)
                n_ctx = plan.options.n_ctx or 0
                if n_ctx <= tokens:
                    raise ContextOverflow(
                        f"the prompt has {tokens} tokens and free memory holds a context of {n_ctx}: shorten it, or free memory"
                    )
                runtime.assistant.close()
                runtime, telemetry = _loaded(plan, flags, cancel, line)
    except Cancelled:
        return None
    assistant = runtime.assistant
    tell(*assistant.notes)
    wanted = last = asked()
    numbers = count(1)

    def stream(request: Request, ended: Callable[[], bool]) -> Iterator[Event]:
        nonlocal last
        last = msgspec.structs.replace(request, id=next(numbers))
        yield from assistant.events(last, ended=ended)

    with recorded(telemetry, quiet=flags["quiet"]), cancel_on_interrupt(cancel):
        reply = answer(wanted, stream, lambda: cancel.is_set)
        if wants_tools(flags):
            runtime.target.truncate(before_question(assistant, last))
            assistant.settle()
    models = assistant.models
    why = no_drafting(reply.drafter, runtime.costs)
    return RunOutcome(reply, models.target_name, models.draft_model_name, assistant.load_s, why)


def _planned(
    request: LaunchOptions, least_ctx: int, line: ProgressLine, tell: Callable[..., None]
) -> LoadPlan:
    """Return the plan of what is requested, with a context of `least_ctx` tokens where no size was given."""

    def fetching(progress: Progress) -> None:
        tell()  # which model it is that is being downloaded
        line.download(progress)

    with unwind_on_terminate():
        return make_plan(request, fetching, least_ctx=least_ctx)


def _loaded(
    plan: LoadPlan, flags: dict[str, Any], cancel: CancelFlag, line: ProgressLine
) -> tuple[Runtime, Telemetry]:
    """Load what is planned; return also what records its replies.

    Raises:
        Cancelled: it was interrupted.
    """
    keep = None
    if wants_tools(flags):
        from localspec.launch.kept_prefixes import keeper  # noqa: PLC0415 - few call anything

        keep = keeper(plan.target)
    telemetry = Telemetry(flags["workload"])
    with cancel_on_interrupt(cancel):
        runtime = load(plan, cancel, line.load, line.measure, observe=telemetry.observe, keep=keep)
    return runtime, telemetry


def _counted_context(
    runtime: Runtime, asked: Callable[..., Request], prompt: str
) -> tuple[int, int]:
    """Return how many tokens the prompt has, and how many of context it needs with its answer; 0 for both where they fit surely, or the model has no more."""
    assistant, wanted = runtime.assistant, asked(save=False)
    n_ctx, max_tokens = runtime.target.n_ctx, wanted.options.max_tokens
    if not may_need_more(prompt, max_tokens, n_ctx) or n_ctx >= runtime.target.model.n_ctx_train:
        return 0, 0
    if wanted.raw is not None:
        tokens = raw_tokens(wanted.raw, assistant.models.tokenizer)
    else:
        tokens = assistant.prompt_tokens(assistant.known.conversation(wanted))
    needed = len(tokens) + (max_tokens or ANSWER_TOKENS)
    return len(tokens), needed if needed > n_ctx else 0


def before_question(assistant: Assistant, asked: Request) -> int:
    """Return how many tokens of a prompt come before its question: what it says of the functions, mostly, which is read at every start."""
    from localspec.launch.kept_prefixes import common  # noqa: PLC0415 - likewise

    told = [each for each in asked.messages if each.role == "system"]

    def tokens(question: str) -> list[int]:
        request = msgspec.structs.replace(asked, messages=(*told, Message.user(question)))
        return assistant.prompt_tokens(assistant.known.conversation(request))

    return common(tokens("a"), tokens("b"))
