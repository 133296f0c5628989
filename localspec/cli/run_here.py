"""What `localspec run` does where nobody has the model in memory: it loads it, and answers."""

from collections.abc import Callable, Iterator
from typing import Any

from localspec.chat.conversation import Conversation, Segment
from localspec.chat.events import Event, Reply
from localspec.cli.hands import Stream
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.cli.recorded import recorded
from localspec.cli.report import RunOutcome
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.ask import Ask
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions


def answered_here(
    request: LaunchOptions,
    asked: Callable[[], Ask],
    flags: dict[str, Any],
    tell: Callable[..., None],
    answer: Callable[[Ask, Stream, Callable[[], bool]], Reply],
) -> RunOutcome | None:
    """Load, and answer; return None where it was interrupted before it was loaded.

    Args:
        request: what to load.
        asked: returns what is asked; called when it is loaded.
        flags: of the verb.
        tell: says sentences to the user.
        answer: has a question answered and written, with all that is called on the way.
    """
    cancel = CancelFlag()
    line = ProgressLine(enabled=not flags["quiet"])

    def fetching(progress: Progress) -> None:
        tell()  # which model it is that is being downloaded
        line.download(progress)

    with line:
        with unwind_on_terminate():
            plan = make_plan(request, fetching)
        with cancel_on_interrupt(cancel):
            try:
                telemetry = Telemetry(flags["workload"])
                runtime = load(plan, cancel, line.load, line.measure, observe=telemetry.observe)
            except Cancelled:
                return None
    assistant = runtime.assistant
    tell(*assistant.notes)
    wanted = asked()
    remembered: tuple[Segment, ...] = ()

    def stream(asked: Ask) -> Iterator[Event]:
        nonlocal remembered
        if asked.raw is not None:
            yield from assistant.stream(asked.raw, asked.options, raw=True)
            return
        conversation = Conversation(
            None, asked.messages, remembered, tools=asked.tools, call_policy=asked.call_policy
        )
        yield from assistant.stream(conversation, asked.options)
        remembered = conversation.remembered

    with recorded(telemetry, quiet=flags["quiet"]), cancel_on_interrupt(cancel):
        reply = answer(wanted, stream, lambda: cancel.is_set)
    models = assistant.models
    return RunOutcome(reply, models.target_name, models.draft_model_name, assistant.load_s)
