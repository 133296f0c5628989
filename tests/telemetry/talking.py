"""Rounds that nobody decoded: what a recorder is told of a reply, for tests and benchmarks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pytest
from localspec.decoding.drafter import Draft
from localspec.decoding.generate import Confirmed
from localspec.decoding.timings import Timings
from localspec.decoding.verify import Verdict

from localspec.decoding.choose import Ranking
from localspec.decoding.round import Round
from localspec.telemetry.pair import Pair
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.switch import Switch

PAIR = Pair("qwen-target", "qwen-draft", 0.020)
_NEAR = Ranking(np.arange(40), np.linspace(4.0, 0.0, 40))


def drafted(n_drafted: int, accepted: int, drafter: str = "model", token: int = 100) -> Confirmed:
    """Return a round of so many drafted and accepted tokens; a correction has rank 2."""
    if n_drafted == 0:
        return Confirmed((token,), Round(Draft(), Verdict(0, token)))
    tokens = tuple(range(token, token + n_drafted))
    ranks = (_NEAR,) * n_drafted if drafter == "model" else ()
    gaps = tuple(1.5 + at for at in range(n_drafted)) if drafter == "model" else ()
    draft = Draft(tokens, (0.8,) * n_drafted, drafter, gaps, (), ranks)
    done = Round(draft, Verdict(accepted, 1))
    return Confirmed(done.confirmed, done)


def stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever is noted written into the database as soon as it can be."""
    monkeypatch.setattr("localspec.telemetry.writer._DUE_BYTES", 0)


def wait_until_spooled(talk: "Talk") -> None:
    """Wait until whatever was told of is in the spool."""
    writer = talk.recorder.writer
    while writer.waiting or not writer._spooled_bytes:
        time.sleep(0.01)


class Talk:
    """Tells a recorder of replies whose rounds take 30 ms: 5 to draft, 20 to verify, 3 to sample, 2 for the rest."""

    def __init__(self, recorder: Recorder, rng: Random | None = None) -> None:
        self.recorder = recorder
        self.rng = rng or Random(0)
        self.removed = (0.0, 0.0)

    def reply(
        self,
        rounds: int = 10,
        acceptance: float = 0.7,
        *,
        asked: str = "Why is the sky blue?",
        text: str = "Because of the air.",
        n_prompt: int = 50,
        n_drafted: int = 3,
        greedy: bool = False,
        ends: bool = True,
        load: float = 1.0,
        plain_every: int = 5,
        pause_s: float = 0.0,
    ) -> None:
        """Tell of one reply; every fifth round is plain, and all of it takes `load` times as long as usual.

        Between rounds nothing happens for `pause_s`.
        """
        trace = self.recorder.begin(asked, range(1000, 1000 + n_prompt), greedy=greedy)
        timings = Timings(lambda: 0.0, prefill_s=0.1, prefill_tokens=n_prompt)
        trace.note(Confirmed((7,), None), timings)
        for number in range(rounds):
            plain = number % plain_every == plain_every - 1
            accepted = 0
            while accepted < n_drafted and self.rng.random() < acceptance:
                accepted += 1
            timings.draft_s += 0 if plain else load * 0.005
            timings.verify_s += load * 0.020
            timings.sample_s += load * 0.003
            timings.decode_s += load * (0.025 if plain else 0.030)
            trace.note(drafted(0, 0) if plain else drafted(n_drafted, accepted), timings)
            if pause_s:
                time.sleep(pause_s)
        if ends:
            trace.end(text, timings)


@contextmanager
def recording(
    directory: Path, switch: Switch | None = None, workload: str | None = None
) -> Iterator[Talk]:
    """Record what is told within, and write all of it."""
    recorder = Recorder(
        directory,
        PAIR,
        switch or Switch(),
        lambda: talk.removed,
        lambda token: f"<{token}>".encode(),
        workload,
    )
    talk = Talk(recorder)
    yield talk
    recorder.close(10.0)
