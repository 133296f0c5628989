"""Random worlds of several sequences: whatever runs beside it, each gives the text that it gives alone."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from localspec.decoding.adaptive import adaptive_policy
from localspec.decoding.crowd import Crowd, CrowdPolicy
from localspec.decoding.drafter import Drafter, NoDrafter
from localspec.decoding.generate import Generation, Limits, StopReason
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.schedule import Ended, Schedule
from localspec.decoding.timings import Timings

from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.policy import FixedPolicy, Plan, Policy
from localspec.llama.sequences import LlamaSequences
from tests.decoding.worlds import FLAT, Request, World, random_world, reference
from tests.llama.toy_native import ToyNative, toy_sequences
from tests.toy import MadPolicy, Oracle, Stopwatch

Text = tuple[tuple[int, ...], StopReason | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One request: its prompt, its world, where it ends, and what it says alone."""

    prompt: tuple[int, ...]
    world: World
    limits: Limits
    tokens: tuple[int, ...]
    stop_reason: StopReason


class ShortPolicy(MadPolicy):
    """A mad one that knows how many rows a pass has."""

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Plan whatever it likes, as far as there are rows."""
        plan = super().plan(tokens, room, lag)
        return replace(plan, draft_length=min(plan.draft_length, 3), draft_prefill=False)


def lines(random: Random, base: World, count: int) -> list[Line]:
    """Draw requests; many begin alike, and some repeat another one whole."""
    shared = tuple(random.randrange(base.n_vocab) for _ in range(random.choice((0, 3, 8, 20))))
    drawn: list[Line] = []
    for _ in range(count):
        other = random_world(random)
        eog = tuple(token for token in other.eog if token < base.n_vocab)
        world = replace(
            base,
            seed=other.seed,
            params=replace(other.params, logit_bias=()),
            eog=eog,
            constraint_salt=other.constraint_salt,
            whim=other.whim,
        )
        prompt = shared[: random.randint(0, len(shared))] if random.random() < 0.3 else shared
        prompt += tuple(random.randrange(base.n_vocab) for _ in range(random.randint(1, 6)))
        if drawn and random.random() < 0.2:
            prompt = random.choice(drawn).prompt
        prompt = prompt[: base.n_ctx - 1]
        most = random.choice((None, 0, 1, 2, 5, 12))
        text, reason = reference(prompt, world, Request(0, (), most, None))
        drawn.append(Line(prompt, world, Limits(most, eog), tuple(text[len(prompt) :]), reason))
    return drawn


def whole(generation: Generation) -> Generator[Pass, Logits, Text]:
    """Run a generation to its end."""
    tokens: list[int] = []
    while (confirmed := (yield from generation.advance())) is not None:
        tokens += confirmed.tokens
    return tuple(tokens), generation.stop_reason


def check_together(random: Random, patch: pytest.MonkeyPatch) -> None:
    """Run some requests in parallel, in any order of arrival; assert that each says what it says alone."""
    base, count, most_rows = (
        random_world(random),
        random.randint(1, 4),
        random.choice((4, 5, 8, 16)),
    )
    n_batch = random.choice((16, 17, 40))
    native = ToyNative(base.tables()[0], base.n_ctx, n_batch, max(most_rows, count), count)
    patch.setattr("localspec.llama.sequences._WORTH_COPYING", random.choice((1, 2, 5)))
    sequences = toy_sequences(native, count, patch.setattr, sharing=random.random() < 0.8)
    native.cancel_after = random.choice((None, None, random.randint(0, 30)))
    schedule, crowd = Schedule[Text](sequences), Crowd(FLAT)
    waiting, running = lines(random, base, random.randint(1, 9)), dict[int, Line]()
    while waiting or schedule.running:
        ended: list[Ended[Text]] = []
        while waiting and (places := _free(running, count)) and random.random() < 0.7:
            place, line = random.choice(places), waiting.pop()
            running[place] = line
            generation = _generation(line, sequences, place, crowd, random)
            ended += schedule.start(place, whole(generation))
            for each in ended:
                _check(each, running, crowd, native)
            ended = []
        for each in schedule.step():
            _check(each, running, crowd, native)
    assert not running


def _free(running: dict[int, Line], count: int) -> list[int]:
    return [place for place in range(count) if place not in running]


def _check(ended: Ended[Text], running: dict[int, Line], crowd: Crowd, native: ToyNative) -> None:
    line = running.pop(ended.place)
    crowd.leave(ended.place)
    assert ended.error is None
    assert ended.value is not None
    tokens, reason = ended.value
    if reason is StopReason.CANCELLED:
        assert native.cancel_after is not None
        assert native.cancel_after < 0, "it was not cancelled"
        assert tokens == line.tokens[: len(tokens)]
    else:
        assert (tokens, reason) == (line.tokens, line.stop_reason)


def _generation(
    line: Line, sequences: LlamaSequences, place: int, crowd: Crowd, random: Random
) -> Generation:
    return Generation(
        line.prompt,
        {Role.TARGET: sequences.views[place]},
        _policy(line, crowd, place, random),
        line.world.chooser(begin=len(line.prompt)),
        line.limits,
        Timings(Stopwatch()),
    )


def _policy(line: Line, crowd: Crowd, place: int, random: Random) -> Policy:
    text, n_vocab = (*line.prompt, *line.tokens), line.world.n_vocab
    oracle = Oracle(text, n_vocab, line.world.lies, Random(line.world.whim))
    lookup = LookupDrafter(line.limits.eog, min_match=1, max_match=6)
    kind = random.choice(("off", "oracle", "lookup", "mad", "crowd", "alone"))
    if kind == "crowd":
        return CrowdPolicy(crowd, place, line.limits.eog, 3)
    if kind == "alone":
        return adaptive_policy(FLAT, line.limits.eog, 3)
    if kind == "mad":
        return ShortPolicy((oracle, lookup, NoDrafter()), Random(line.world.whim))
    drafters: dict[str, Drafter] = {"off": NoDrafter(), "oracle": oracle, "lookup": lookup}
    return FixedPolicy(drafters[kind], random.randint(0, 3))
