"""Recording: a loaded pair's replies go to the telemetry, unless the user has switched it off."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from localspec.chat.assistant import Assistant
from localspec.chat.parallel import Parallel
from localspec.config.keys import KEYS, from_text
from localspec.config.resolve import PREFIX
from localspec.decoding.adaptive import AdaptivePolicy
from localspec.drafting import PairCosts
from localspec.errors import LocalspecError
from localspec.storage.paths import data_dir
from localspec.telemetry.pair import Pair
from localspec.telemetry.recorder import Recorder, alone
from localspec.telemetry.switch import read_switch

_KEY = "telemetry"


def telemetry_dir() -> Path:
    """Return where the telemetry is, made or not.

    Raises:
        UsageError: there is no data directory.
    """
    return data_dir() / "telemetry"


def is_allowed(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the setting `telemetry` allows it; one that nobody understands does not.

    Verbs hand what their files say on by its variable, so that an engine's process knows it, too.
    """
    text = (os.environ if environ is None else environ).get(f"{PREFIX}{_KEY.upper()}", "")
    try:
        return not text or from_text(KEYS[_KEY], text) is True
    except ValueError:
        return False


def record(
    assistant: Assistant, costs: PairCosts | None = None, workload: str | None = None
) -> Recorder | None:
    """Have an assistant's replies recorded from now on; what is left is written when its models are closed.

    Args:
        assistant: replies.
        costs: of its pair's passes, where they are known.
        workload: what kind of text all of it is; None guesses.

    Returns:
        The recorder; None where it is switched off, or there is no place for it.
    """
    plain_s = None if costs is None else costs.target.of(1)
    recorder = _recorder(assistant, workload, plain_s=plain_s)
    if recorder is None:
        return None
    assistant.tracer = recorder
    policy = assistant.policy
    if isinstance(policy, AdaptivePolicy) and policy.uses_draft_model:
        from localspec.informed import Informed  # noqa: PLC0415 - brings sqlite, which others start without

        assistant.tracer = Informed(recorder, policy, recorder.directory, recorder.pair, workload)
    return recorder


def record_parallel(parallel: Parallel, workload: str | None = None) -> Recorder | None:
    """Have the replies of several assistants recorded, as those of a pair of their own; see `record`.

    The passes are everybody's: a round is noted with its share of the time. What drafting gained cannot be told from
    that, so none of it is compared with rounds without a draft.
    """
    recorder = _recorder(
        parallel.assistants[0],
        workload,
        at_once=parallel.count,
        running=lambda: max(1, parallel.running),
    )
    for assistant in parallel.assistants:
        assistant.tracer = recorder
    return recorder


def _recorder(
    assistant: Assistant,
    workload: str | None,
    *,
    plain_s: float | None = None,
    at_once: int = 1,
    running: Callable[[], int] = alone,
) -> Recorder | None:
    """Return a recorder that ends with the assistant's models; None where it is switched off, or there is no place for it."""
    try:
        directory = telemetry_dir()
    except LocalspecError:
        return None
    switch = read_switch(directory)
    if not (switch.on and is_allowed()):
        return None
    models = assistant.models
    names = _called(models.target_name), _called(models.draft_model_name or "")
    recorder = Recorder(
        directory,
        Pair(*names, plain_s, at_once),
        switch,
        models.truncate_s,
        models.tokenizer.piece,
        workload,
        running=running,
    )

    def close() -> None:
        recorder.close()
        models.close()

    assistant.models = replace(models, close=close)
    return recorder


def _called(name: str) -> str:
    """Return a model's name; of a path only the end, for nobody has to know where things are kept."""
    return Path(name).name if os.sep in name else name
