"""The measurement itself: every run of a schedule, one after the other, until done or interrupted."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from localspec.bench.modes import is_peer
from localspec.bench.prompts import BenchPrompt
from localspec.bench.schedule import Slot
from localspec.bench.trial import Trial
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.decoding.cancel import Cancelled
from localspec.errors import ContextOverflow


class Runs(Protocol):
    """Whoever answers prompts: localspec itself, or a peer."""

    def run(self, slot: Slot) -> Trial:
        """Answer, and return what came of it; raises Cancelled."""
        ...

    def warm_up(self, modes: Sequence[str]) -> None:
        """Do once, untimed, what costs more the first time."""
        ...


def measure(
    slots: Sequence[Slot],
    own: Runs,
    peer: Runs | None,
    on_trial: Callable[[int, Trial], None] = lambda _done, _trial: None,
) -> list[Trial]:
    """Run every slot in order, and return what came of them; of those before somebody ended it, if somebody did.

    Args:
        slots: at least one.
        own: runs localspec's modes.
        peer: runs those of a peer; None where there are none.
        on_trial: called after each with how many are done.

    Raises:
        LocalspecError: a run failed.
    """
    trials: list[Trial] = []
    modes = dict.fromkeys(slot.mode for slot in slots)
    with suppress(Cancelled):
        own.warm_up([mode for mode in modes if not is_peer(mode)])
        if peer is not None:
            peer.warm_up([mode for mode in modes if is_peer(mode)])
        for slot in slots:
            runs = peer if is_peer(slot.mode) else own
            assert runs is not None  # noqa: S101 - modes of a peer come with one
            trials.append(runs.run(slot))
            on_trial(len(trials), trials[-1])
    return trials


def prompt_tokens(assistant: Assistant, prompts: Sequence[BenchPrompt]) -> list[list[int]]:
    """Return the tokens of every prompt, in the target's chat template.

    Raises:
        ContextOverflow: one of them leaves no room for an answer.
        TemplateError: the target has no template.
    """
    found = []
    n_ctx = assistant.models.target.n_ctx
    for number, prompt in enumerate(prompts, start=1):
        conversation = Conversation()
        conversation.append_user(prompt.prompt)
        tokens = conversation.prompt_tokens(assistant.template, assistant.models.tokenizer)
        if len(tokens) >= n_ctx:
            raise ContextOverflow(
                f"prompt {number} ({prompt.workload}) has {len(tokens)} tokens and the context "
                f"holds {n_ctx}: remove it, or raise --ctx"
            )
        found.append(tokens)
    return found
