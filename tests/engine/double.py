"""An engine without weights: the real server and protocol, the real Assistant, and models that tell a script.

    RemoteEngine(command({"answers": {"river": "The Rhine."}, "pass_s": 0.01}))

A script is a dict; every field may be left out. `pass_s`, `chunk_s`, `load_s` and `deaf` may be the name of a file instead
of seconds: then it takes until that file is there.

    answers     {part of a question, or of a call's result: answer}; the last part that fits counts
    otherwise   answers to all other questions, by their number in the conversation, over and over
    n_ctx       tokens of context (4000; a token is a byte, a few words apart)
    pass_s      seconds that a pass takes (0); a reply is a pass for each byte, or for each draft
    chunk_s     seconds that 64 tokens of a prompt take (0)
    rests       {"at": 4, "until": file}: a reply of so many bytes, or a prompt of which so many tokens are evaluated, does
                not go on until that file is there
    parallel    how many requests are answered at once (1)
    thinks      whether the template knows <think> (False)
    calls       whether the template knows calls, and answers can be held to them (False)
    sees, hears whether it takes pictures, and sounds (False): five tokens for each, three of them ~ in a question
    fim         tokens for filling in the middle (none)
    drafts      tokens to draft a round (0); some are wrong, and the drafter calls itself model, or lookup
    clients     whether drafts of clients are weighed (False); needs costs
    fails       {part of a question: [where, at]}: answers that fail after `at` bytes: in a `pass` that llama.cpp refuses,
                in the `draft` of this reply, or in the `model`, as nobody foresees
    crowded     what others hold that leaves no room (never), in bytes: with as much beside it, nothing is loaded
    held        bytes of RAM that it holds (0)
    load_s      seconds that loading takes (0), told in ten steps
    notes       sentences for Ready
    costs       {"target": [[widths], [seconds]], "draft_model": [[1], [seconds]]}: what passes take; none by default
    download    {"bytes": 1000000, "seconds": 1.0}: what fetching takes
    refuses     {name of a pair or target: [class in localspec.errors, reason]}: loads that fail
    too_large   {name of a pair or target: [class, reason]}: loads that fail when what was loaded before is gone
    deadly      name of a pair or target that loading dies of
    death       {"on": "start" | "fetch" | "load" | "prefill" | "token", "at": 0, "how": "SIGKILL"}: where the process
                ends; `at` counts chunks or bytes of the reply, `how` is a signal or an exit code
    deaf        seconds for which it reads nothing at the start
    stubborn_s  seconds in which loading looks at nothing
    stderr      what it writes there at the start
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from localspec import errors
from localspec.chat.assistant import Assistant
from localspec.chat.loaded_models import LoadedModels
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.draft_mode import draft_mode
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, Policy, Sharing, plain_policy
from localspec.engine.child import serve
from localspec.engine.protocol import Downloading, Load, Loading, Measuring
from localspec.messages import Held
from localspec.options import LaunchOptions
from localspec.plugins.serve.drafts.drafter import ClientDrafter
from tests import warm
from tests.chat.toy_calls import GRAMMARS, HERMES
from tests.chat.toy_encoder import ToyEncoder
from tests.engine.scripted import (
    END,
    NEVER,
    TEMPLATE,
    THINKING_TEMPLATE,
    TOKENIZER,
    Death,
    KnowingDrafter,
    script_of,
    sequences_of,
    wait,
)

_STEPS = 10


def command(script: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return what starts a double, for `RemoteEngine`."""
    root = str(Path(__file__).parents[2])
    start = (
        f"import sys; sys.path.insert(0, {root!r}); from tests.engine.double import main; main()"
    )
    return (sys.executable, "-c", start, json.dumps(dict(script or {})))


def popen(line: Sequence[str], **options: Any) -> "subprocess.Popen[bytes] | warm.Process":
    """Start a double in a warm process, and everything else as `subprocess.Popen` does."""
    if line[:-1] != command()[:-1]:
        return subprocess.Popen(line, **options)
    own_session = options.get("start_new_session", False)
    return warm.Process("tests.engine.double", (line[-1],), os.environ, own_session=own_session)


WARM = SimpleNamespace(Popen=popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
"""What stands for `subprocess` where engines are started."""


@dataclass(frozen=True, slots=True, eq=False)
class Scripted:
    assistant: Assistant
    policy: Callable[[str, int], Policy]
    costs: PairCosts | None = None
    held: Held = field(default_factory=Held)


class ScriptedFactory:
    def __init__(self, script: dict[str, Any]) -> None:
        self._script = script
        self._death = Death(**script["death"]) if "death" in script else NEVER

    def fetch(self, load: Load, tell: Callable[[Downloading], None]) -> None:
        name = name_of(load.options)
        self._death.strike("fetch", 0)
        self._refuse("refuses", name)
        download = self._script.get("download")
        if download is not None:
            for step in range(_STEPS + 1):
                done = download["bytes"] * step // _STEPS
                tell(Downloading(name, done, download["bytes"], "a script"))
                time.sleep(download["seconds"] / _STEPS)

    def load(
        self, load: Load, cancel: CancelFlag, tell: Callable[[Loading | Measuring], None]
    ) -> Scripted:
        options = load.options
        name = name_of(options)
        self._refuse("too_large", name)
        if load.others is not None and load.others.places["RAM"] >= self._script.get(
            "crowded", 1e9
        ):
            raise errors.NoRoom(f"{name} has no room")
        tell(Loading(name, 0.0))
        time.sleep(self._script.get("stubborn_s", 0.0))
        for step in range(_STEPS + 1):
            tell(Loading(name, step / _STEPS))
            wait(part_of(self._script.get("load_s", 0.0)), cancel)
        self._death.strike("load", 0)
        if name == self._script.get("deadly"):
            Death("load").strike("load", 0)
        size = {} if options.load.n_ctx is None else {"n_ctx": options.load.n_ctx}
        return loaded(name, self._script | size, cancel)

    def _refuse(self, which: str, name: str) -> None:
        refused = self._script.get(which, {}).get(name)
        if refused is not None:
            kind, reason = refused
            raise getattr(errors, kind)(reason)


def part_of(seconds: float | str) -> float | str:
    return seconds if isinstance(seconds, str) else seconds / _STEPS


def name_of(options: LaunchOptions) -> str:
    return options.pair or options.target or "default-pair"


def loaded(name: str, document: dict[str, Any], cancel: CancelFlag) -> Scripted:
    drafts, script = document.get("drafts", 0), script_of(document)
    sees, hears = bool(document.get("sees")), bool(document.get("hears"))
    targets, costs = sequences_of(document, script, cancel), costs_of(document)
    models = LoadedModels(
        targets=targets,
        draft_models=None,
        tokenizer=TOKENIZER,
        eog={END},
        suppressed=(),
        template_source=_template(document),
        grammar=GRAMMARS if document.get("calls") else None,
        target_name=name,
        draft_model_name=f"{name}-draft" if drafts else None,
        cancel=cancel,
        close=lambda: None,
        fim=document.get("fim", {}),
        media=ToyEncoder(sees, hears) if sees or hears else None,
        model_for=lambda _kind: "seer",
        costs=costs,
    )
    policies: list[Policy] = [
        FixedPolicy(KnowingDrafter(script), drafts) if drafts else plain_policy()
        for _ in targets.views
    ]
    if document.get("clients") and costs is not None:
        sharing = Sharing()
        policies = [
            AdaptivePolicy(costs.target, 15, [ClientDrafter({END})], 0, sharing, slot)
            for slot in range(len(targets.views))
        ]
    assistant = Assistant(models, policies, notes=tuple(document.get("notes", ())))

    def policy(mode: str, slot: int) -> Policy:
        if draft_mode(mode).kind == "off":
            return plain_policy()
        if not drafts:
            raise errors.UsageError(
                f"draft mode {mode!r} needs a draft model: no draft model is loaded"
            )
        return FixedPolicy(KnowingDrafter(script), drafts)

    held = Held({"RAM": document.get("held", 0)})
    return Scripted(assistant, policy, costs, held)


def _template(document: Mapping[str, Any]) -> str:
    if document.get("calls"):
        return HERMES
    return THINKING_TEMPLATE if document.get("thinks") else TEMPLATE


def costs_of(document: dict[str, Any]) -> PairCosts | None:
    tables = document.get("costs")
    if tables is None:
        return None
    costs = {role: PassCosts(*map(tuple, table)) for role, table in tables.items()}
    return PairCosts(costs["target"], costs.get("draft_model"))


def main() -> None:
    script = json.loads(sys.argv[1])
    sys.stderr.write(script.get("stderr", ""))
    factory = ScriptedFactory(script)
    Death(**script["death"]).strike("start", 0) if "death" in script else None
    wait(script.get("deaf", 0.0), CancelFlag())
    serve(factory, "double")


if __name__ == "__main__":
    main()
