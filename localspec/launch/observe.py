"""Observe: replies go to the telemetry, and what it knows of such texts goes to the policy, unless the user has switched it off. The seam of `telemetry`."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chat.events import Event, Finished, RoundDone
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.request import Observer, Request
from localspec.config.recorded import recording, telemetry_dir
from localspec.decoding.costs import PairCosts
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.policy import AdaptivePolicy, Policy

if TYPE_CHECKING:
    from localspec.telemetry.recorder import Recorder


class Telemetry:
    """Has replies recorded, and gives policies what such texts earned before; see `Observer`.

    Args:
        workload: what kind of text all of it is; None guesses.

    Attributes:
        recorder: writes down; None before models are loaded, where it is switched off, or if there
            is no place for it.
    """

    def __init__(self, workload: str | None = None) -> None:
        self._workload = workload
        self._known: dict[tuple[str, bool], Mapping[int, tuple[float, float]]] = {}
        self.recorder: Recorder | None = None
        self._costs: PairCosts | None = None

    @property
    def trouble(self) -> str | None:
        """Why nothing is recorded any more, on one line; None while all is well."""
        return None if self.recorder is None else self.recorder.trouble

    def observe(self, models: LoadedModels, count: int) -> Sequence[Observer]:
        """Begin to record replies of models; see `load`."""
        switch = recording()
        if switch is None:
            return ()
        try:  # a feature that can be taken away
            from localspec.telemetry.recorder import Recorder  # noqa: PLC0415
            from localspec.telemetry.reply import Pair  # noqa: PLC0415
        except ModuleNotFoundError:
            return ()
        pair = Pair(_called(models.target_name), _called(models.draft_model_name or ""), count)
        piece, self._costs = models.tokenizer.piece, models.costs
        self.recorder = Recorder(
            telemetry_dir(), pair, switch, piece, self._workload, is_secret=_is_secret
        )
        return (self,)

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        """Start the record of a reply; see `Observer`."""
        recorder, greedy = self.recorder, request.options.sampling.temperature == 0
        assert recorder is not None, "it observes"  # noqa: S101
        self._inform(policy, request.question, greedy=greedy)
        trace = recorder.begin(request.question, tokens, greedy=greedy)

        def take(event: Event) -> None:
            if isinstance(event, RoundDone):
                trace.note(event.round)
            elif isinstance(event, Finished):
                reply = event.reply
                trace.findings = {(rule, action): n for rule, action, n in event.findings}
                if not reply.acceptance.drafted:
                    # Chats that draft need none of it.
                    from localspec.engine.forecast import no_drafting  # noqa: PLC0415

                    why = no_drafting(reply.acceptance, reply.drafter, self._costs)
                    trace.record.no_drafting = why
                plain_s = 0.0 if reply.gain is None else reply.gain.plain_s
                trace.end(reply.text, reply.prefill_s, reply.decode_s, reply.seed, plain_s)

        return take

    def close(self) -> None:
        """Write down what is left."""
        if self.recorder is not None:
            self.recorder.close()

    def _inform(self, policy: Policy, question: str, *, greedy: bool) -> None:
        """Give a policy what drafts earned on such texts; chances only plan how far to draft."""
        if not isinstance(policy, AdaptivePolicy) or self.recorder is None:
            return
        for drafter in policy.drafters:
            if not isinstance(drafter, ModelDrafter):
                continue
            # They bring patterns, which others start without.
            from localspec.telemetry.log import read_prior  # noqa: PLC0415

            kind = (self._workload or workload_of(question), greedy)
            if kind not in self._known:
                directory, pair = self.recorder.directory, self.recorder.pair
                prior = read_prior(directory, pair, kind[0], greedy=greedy, now_s=time.time())
                self._known[kind] = prior.get(drafter.name, {})
            drafter.expect(self._known[kind])


def workload_of(question: str, reply: str = "") -> str:
    """Return what kind of text a reply is, see `WORKLOADS`; its patterns take a while to be compiled the first time."""
    from localspec.telemetry import workload  # noqa: PLC0415 - a feature that can be taken away

    return workload.workload_of(question, reply)


def _is_secret(text: str) -> bool:
    from localspec.chat.gated import gate_of  # noqa: PLC0415 - few replies are recorded with text

    return bool(gate_of("usual").hidden(text))


def _called(name: str) -> str:
    """Return a model's name; of a path only the end, so that no record says where files are."""
    called = Path(name).name if os.sep in name else name
    return os.fsencode(called).decode(errors="replace")
