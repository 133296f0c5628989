"""Made rounds: what a recorder notes of a reply, for tests and benchmarks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from localspec.decoding.costs import PassCosts
from localspec.decoding.gain import GainMeter
from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict
from localspec.launch.observe import _is_secret
from localspec.options.recording import Switch
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import Pair
from tests.waiting import PATIENCE_S

PAIR = Pair("qwen-target", "qwen-draft")

_NOTHING = Spent()


def drafted(
    n_drafted: int, accepted: int, drafter: str = "model", token: int = 100, spent: Spent = _NOTHING
) -> Round:
    """Return a round of so many drafted and accepted tokens; a correction has rank 2."""
    if n_drafted == 0:
        return Round(Draft(), Verdict(0, token), (token,), spent)
    tokens = tuple(range(token, token + n_drafted))
    others = ((1, 2),) * n_drafted if drafter == "model" else ()
    gaps = tuple(1.5 + at for at in range(n_drafted)) if drafter == "model" else ()
    draft = Draft(tokens, (0.8,) * n_drafted, drafter, gaps, others)
    return Round(draft, Verdict(accepted, 1), (*tokens[:accepted], 1), spent)


def first(token: int = 7) -> Round:
    """Return the first token, which the prompt gives."""
    return Round(Draft(drafter=PROMPT), Verdict(0, token), (token,))


class Talk:
    """Has a recorder note replies whose rounds take 30 ms: 5 to draft, 20 to verify, 3 to sample, 2 for the rest."""

    def __init__(self, recorder: Recorder, rng: Random | None = None) -> None:
        self.recorder = recorder
        self.rng = rng or Random(0)

    def reply(
        self,
        rounds: int = 10,
        acceptance: float = 0.7,
        *,
        asked: str = "Why is the sky blue?",
        text: str = "Because of the air.",
        n_prompt: int = 50,
        n_drafted: int = 3,
        ends: bool = True,
        seed: int | None = None,
        load: float = 1.0,
        plain_every: int = 5,
    ) -> None:
        """Note one reply; every fifth round is plain, and all of it takes `load` times as long as usual."""
        trace = self.recorder.begin(asked, range(1000, 1000 + n_prompt), greedy=False)
        decode_s, meter = 0.0, GainMeter(PassCosts((1, 4), (0.020, 0.020)))
        trace.note(first())
        for number in range(rounds):
            plain = number % plain_every == plain_every - 1
            accepted = 0
            while accepted < n_drafted and self.rng.random() < acceptance:
                accepted += 1
            spent = Spent(
                draft_s=0.0 if plain else load * 0.005,
                verify_s=load * 0.020,
                sample_s=load * 0.003,
                other_s=load * 0.002,
            )
            decode_s += spent.wall_s
            counts = (0, 0) if plain else (n_drafted, accepted)
            done = drafted(*counts, spent=spent)
            meter.add(done)
            trace.note(done)
        if ends:
            gain = meter.gain(0.1)
            trace.end(text, 0.1, decode_s, seed, gain.plain_s if gain else 0.0)


@contextmanager
def recording(
    directory: Path,
    switch: Switch | None = None,
    workload: str | None = None,
    pair: Pair = PAIR,
) -> Iterator[Talk]:
    """Record what is noted within, and write all of it by the end."""
    recorder = Recorder(directory, pair, switch or Switch(), lambda each: b"<%d>" % each, workload)
    recorder.is_secret = _is_secret
    yield Talk(recorder)
    recorder.close(PATIENCE_S)
