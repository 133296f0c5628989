"""Drafts that are copied: from the text itself, from what was said before, and from a rule that leaves no choice.

`test_same_text` shows that they change no text.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.drafters.copying import CopySource, predicted
from localspec.decoding.drafters.draft_length import best_length
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.drafters.lookup import LookupDrafter, make
from localspec.decoding.drafters.register import DrafterContext, drafters
from localspec.decoding.drafting import Drafting
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import MOST_LOST, AdaptivePolicy, FixedPolicy
from localspec.decoding.round import Draft, Round, Verdict
from localspec.decoding.speculative import speculative_round
from localspec.options import SamplingParams
from localspec.plugins.store.drafter import PastSource, StoreDrafter
from localspec.plugins.store.token_log import TokenLog
from tests.decoding.worlds import FLAT, SaidTwice, SomeResidues, random_world, reference, seeds
from tests.support.checks import there
from tests.toy import GREEDY, SAMPLED, CachedModel, random_table, run_to_end

Q4_K_M = PassCosts(
    (1, 2, 3, 4, 5, 6, 8, 12, 16, 32),
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
COPIED = [*range(100, 140), 7, *range(100, 120)]


def follow(drafter: LookupDrafter, *confirmed: int) -> None:
    drafter.learn(Round(Draft(), Verdict(0, confirmed[-1]), confirmed))


def following(
    tokens: Sequence[int], drafter: LookupDrafter | None = None, known: int | None = None
) -> LookupDrafter:
    known = len(tokens) if known is None else known
    drafter = drafter or LookupDrafter(())
    drafter.begin(tokens[:known], GREEDY)
    for token in tokens[known:]:
        follow(drafter, token)
    return drafter


def propose(
    drafter: LookupDrafter, tokens: Sequence[int], draft_length: int, chooser: Chooser = SAMPLED
) -> Draft:
    with pytest.raises(StopIteration) as finished:
        next(drafter.propose(tokens, Plan(drafter, draft_length), chooser))
    draft = finished.value.value
    assert isinstance(draft, Draft)
    return draft


# Where a text may copy from.


@pytest.mark.parametrize(
    ("tokens", "length", "continuation"),
    [
        ([], 0, []),
        ([1, 2, 3, 4, 1], 0, []),
        ([1, 2, 3, 1, 2], 2, [3, 1, 2]),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 3, [4, 5, 6]),
        ([9, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3], 4, [4, 8, 1]),  # the longer match
        ([1, 2, 3, 4, 7, 1, 2, 3, 5, 7, 1, 2, 3], 4, [5, 7, 1]),  # the later of equals
        ([1, 2, 1, 2, 1], 3, [2, 1, 2]),  # into its own copy
        ([7, 7, 7], 2, [7, 7, 7]),
        # A text of nothing but one n-gram costs no more than any other: sixteen matches are tried.
        ([5, 6, 1, 2, 3, *[1, 2, 4] * 15, 5, 6, 1, 2], 4, [3, 1, 2]),
        ([5, 6, 1, 2, 3, *[1, 2, 4] * 16, 5, 6, 1, 2], 2, [4, 5, 6]),
    ],
)
def test_the_longest_match_predicts(
    tokens: list[int], length: int, continuation: list[int]
) -> None:
    source = CopySource()
    source.begin(tokens)
    assert source.length == length
    assert source.predict(3) == continuation
    draft = propose(following(tokens), tokens or [0], 3)
    assert draft.tokens == tuple(continuation)
    assert list(draft.confidences) == sorted(draft.confidences), "each makes the match longer"
    assert all(0 < confidence < 1 for confidence in draft.confidences)


def test_every_new_token_shows_whether_it_was_predicted() -> None:
    source = CopySource()
    source.begin([1, 2, 3, 4, 5, 6, 7, 1, 2, 3])
    lengths = []
    for token, right in ((4, True), (5, True), (9, False), (8, None)):
        lengths.append(source.length)
        assert source.follow(token) is right
    assert [*lengths, source.length] == [3, 4, 5, 0, 0]


@pytest.mark.parametrize(
    ("text", "known", "disputed", "chance"),
    [
        ([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2, 3], 13, True, 0.38),
        ([1, 2, 3, 4, 9, 1, 2, 3, 4, 8, 1, 2, 3], 13, False, 0.58),
        ([2, 3, 4, 9, 2, 3, 5, 8, 2, 3], 10, True, 0.25),
        ([*range(100, 140), 7, *range(100, 134)], 75, False, 0.985),  # of 32 tokens
        ([*range(10, 40), *range(50, 80), *range(10, 22), 77, 25, 26], 72, False, 0.72),
    ],
)
def test_what_a_match_is_worth(text: list[int], known: int, disputed: bool, chance: float) -> None:
    """Places that go on differently dispute each other; where a copy broke off, a short match says more.

    A text that has not shown anything yet is doubted, by 0.2 in log odds.
    """
    drafter = following(text, known=known)
    assert drafter.source.disputed is disputed
    doubted = 1 / (1 + (1 / chance - 1) * exp(0.2))
    assert propose(drafter, text, 1).confidences == pytest.approx((doubted,), abs=0.03)


def test_where_a_long_copy_broke_off_it_is_expected_to_go_on() -> None:
    """Two tokens after an edit suffice, though the same two stand elsewhere, and later."""
    passage = list(range(10, 40))
    text = [*passage, *range(50, 80), 8, 25, 26, 9, *passage[:12], 77, 25, 26]
    unbroken = [*passage, 8, 25, 26, 9, 7, 25, 26]
    for near, known, begun in ((True, [27, 28, 29], text[:-3]), (False, [9, 7, 25], unbroken)):
        source = CopySource()
        source.begin(begun)
        for token in text[-3:] if near else ():
            source.follow(token)
        assert (source.near, source.length, source.predict(3)) == (near, 2, known)


@pytest.mark.parametrize("length", [3, 5, 20])
def test_what_the_reply_has_said_itself_is_trusted_less_and_a_long_match_in_the_prompt_most(
    length: int,
) -> None:
    """A reply repeats a phrase and goes on otherwise; of a prompt it copies."""
    said = [*range(100, 100 + length + 8), 7]
    again = said[:length]
    prompt, own = following([*said, *again]), following([5, 6, *said, *again], known=2)
    forecasts = [each.forecast([]) for each in (prompt, own)]
    (by_prompt, *_), (by_own, *_) = (each.chances for each in forecasts if each is not None)
    assert by_prompt > by_own if length < 6 else by_prompt == pytest.approx(by_own, abs=0.03)
    assert (prompt.reserve < own.reserve) is (length > 11)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 40), st.integers(2, 5))
@settings(max_examples=150, deadline=None)
def test_what_is_proposed_follows_a_true_match_however_the_text_was_followed(
    tokens: list[int], known: int, min_match: int
) -> None:
    drafter = following(tokens, LookupDrafter((), min_match), max(1, known))
    drafted = propose(drafter, tokens, 4).tokens
    goes_on, end = [*tokens, *drafted], tokens[len(tokens) - min_match :]
    assert not drafted or any(
        tokens[at - min_match : at] == end and tuple(goes_on[at : at + 4]) == drafted
        for at in range(min_match, len(tokens))
    )


def test_where_a_draft_begins_and_ends() -> None:
    text = [1, 2, 3, 4, 1, 2]
    assert propose(following(text, LookupDrafter((3,))), text, 5).tokens == (3,)
    assert propose(following(text, LookupDrafter((), 3)), text, 3) == Draft(drafter="lookup")
    text, goes_on = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1], (2, 3, 4, 5, 6, 7)
    bound = Chooser(SAMPLED.params, SAMPLED.noise, SomeResidues(salt=4, last=8))
    draft = propose(following(text), text, 6, bound)
    assert SAMPLED.admitted(text, goes_on) == 6
    assert 0 < len(draft.tokens) == len(draft.confidences) < 6, "as far as a constraint lets it"
    assert draft.tokens == goes_on[: len(draft.tokens)]
    drafter = following([1, 2, 3, 4, 1, 2])  # another reply follows its own text
    for text, tokens in (([1, 2, 9, 1, 2], (9,)), ([1, 2], ())):
        drafter.begin(text, GREEDY)
        assert propose(drafter, text, 1).tokens == tokens
    for fixed, length in ((True, 5), (False, 2)):  # a fixed one copies after five tokens
        for matched in (length - 1, length):
            text = [*range(10), 50, *range(10 - matched, 10)]
            drafter = following(text, make(DrafterContext((), fixed=fixed)))
            assert bool(propose(drafter, text, 3).tokens) is (matched == length)


def test_what_a_text_is_expected_to_be_like_is_looked_up_from_its_first_tokens() -> None:
    prompt, prediction = [1, 2, 3, 1, 2, 9], (5, 6, 7, 8)
    drafter, expecting = LookupDrafter(()), replace(GREEDY, prediction=prediction)
    for begun in range(1, 4):
        text = [*prompt, *prediction[:begun]]
        drafter.begin(text, expecting)
        assert propose(drafter, text, 4 - begun).tokens == prediction[begun:]
    drafter.begin([*prompt, 4], expecting)
    assert propose(drafter, [*prompt, 4], 3).tokens == ()
    follow(drafter, 6)
    follow(drafter, 7)  # behind a token that was not expected
    assert propose(drafter, [*prompt, 4, 6, 7], 1).tokens == (8,)
    for reply, count in (((5, 6, 7, 8), 4), ((4, 6, 7, 8), 1), ((5, 6, 0, 0), 2), ((), 0)):
        assert predicted(prompt, prediction, reply) == count
    assert predicted(prompt, prediction, prediction * 3) == 4
    assert predicted([3], (), (1, 2)) == 0


def test_a_long_match_is_worth_a_pass_and_a_short_one_is_not_and_none_is_forecast() -> None:
    verify_s = [Q4_K_M.of(width) for width in range(1, 33)]
    drafter = following(COPIED, known=50)
    long = there(drafter.forecast(COPIED))
    assert long == drafter.forecast(COPIED), "a forecast changes nothing"
    length, rate = best_length(long.chances, verify_s)
    assert length == 15, "where 16 cost less than 12"
    assert rate > 1.1 / Q4_K_M.of(1)
    short = there(following(text := [*COPIED[:41], 100, 101]).forecast(text))
    assert best_length(short.chances, verify_s)[0] == 0
    assert short.step_s == short.start_s == 0.0
    assert following(list(range(40))).forecast([39]) is None


# What was said before.

SAID = [*range(100, 160)]


def stored(text: list[int], said: list[int] = SAID, known: int | None = None) -> LookupDrafter:
    return following(text, StoreDrafter((), 2, SaidTwice(said)), known)


@pytest.mark.parametrize(
    ("text", "most", "tokens"),
    [
        ([7, 100, 101, 102], 3, (103, 104, 105)),
        ([7, 156, 157, 158], 30, (159,)),  # up to its end
        ([7, 8, 9], 3, ()),
        ([*SAID[:10], 7, *SAID[:10]], 3, ()),  # the text itself says as much
        ([*SAID[5:10], 7, *SAID[:10]], 3, (110, 111, 112)),
    ],
)
def test_what_was_said_is_proposed(text: list[int], most: int, tokens: tuple[int, ...]) -> None:
    draft = propose(stored(text), [], most)
    assert (draft.tokens, draft.drafter, len(draft.confidences)) == (tokens, "store", len(tokens))


def test_a_place_is_followed_while_it_is_right_and_searched_anew_when_it_is_not() -> None:
    said = [1, 2, 3, 4, 5, 6, 7, 50, 51, 52, 53, 54, 55]
    drafter = stored([1, 2, 3, 4, 5, 50, 51, 52], said, known=4)
    assert propose(drafter, [], 2).tokens == (53, 54)
    source = PastSource(SaidTwice(said))
    source.begin([1, 2, 3, 4])
    rights = [source.follow(token) for token in (5, 6, 9, 50, 51)]
    assert rights == [True, True, False, None, None]
    assert (source.length, PastSource(SaidTwice([])).length) == (2, 0)
    source.begin([9, 8, 7])
    assert (source.length, source.follow(6)) == (0, None)
    assert StoreDrafter.reserve > 0.8 * MOST_LOST, "most of the budget is for others"
    made = drafters()["store"].make(DrafterContext((), shared=SaidTwice(SAID)))
    made.begin([100, 101, 102], SAMPLED)
    assert propose(made, [], 1).tokens == (103,)  # type: ignore[arg-type]


@pytest.mark.parametrize("some", seeds(60, parts=2), ids=str)
def test_with_a_real_store_each_says_what_it_says_alone(tmp_path: Path, some: range) -> None:
    """Replies go into a file, and later ones are drafted from it, by a policy and always."""
    drafted = accepted = 0
    for seed in some:
        world = random_world(Random(seed))
        log = TokenLog(tmp_path / "said", seed % 3, world.n_vocab, megabytes=1)
        fixed = FixedPolicy(StoreDrafter(world.eog, 2, log), 3)
        weighed = AdaptivePolicy(FLAT, 9, [StoreDrafter(world.eog, 2, log)])
        for policy in (fixed, weighed):
            models = {Role.TARGET: CachedModel(world.tables()[0], world.n_ctx)}
            for request in world.requests:
                prompt = [*request.added][: world.n_ctx - 1]
                expected, reason = reference(prompt, world, request.max_tokens)
                chooser, limits = world.chooser(len(prompt)), Limits(request.max_tokens, world.eog)
                reply = run_to_end(prompt, models, policy, chooser, limits)
                assert (*prompt, *reply.tokens) == tuple(expected)
                assert reply.stop_reason is reason
                log.append(str(seed), expected)
                drafted += sum(each.drafted for each in reply.rounds)
                accepted += sum(each.verdict.accepted for each in reply.rounds)
    assert drafted > accepted > 0


# What must follow.

STARTS, CYCLE = {0, 2, 3, 5, 9}, (4, 7, 1)


class Cycle:
    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        left = self.forced(prefix)
        return np.ones(ids.size, dtype=np.bool_) if not left else ids == left[0]

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        for said in range(min(len(CYCLE), len(prefix))):
            start, *since = prefix[len(prefix) - said - 1 :]
            if start in STARTS and tuple(since) == CYCLE[:said]:
                return CYCLE[said:]
        return ()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("mode", ["auto", "forced", "forced:2"])
def test_what_must_follow_is_drafted_and_never_rejected(mode: str, temperature: float) -> None:
    costs = PairCosts(PassCosts((1, 32), (1.0, 1.5)))
    chooser = Chooser(SamplingParams(temperature=temperature), Noise(5), Cycle())
    replies = []
    for each in ("off", mode):
        policy = Drafting(1, None, None, (), costs, longest=31).policy(each)
        target = CachedModel(random_table(3, 12), 90)
        replies.append(
            run_to_end([3, 9, 2], {Role.TARGET: target}, policy, chooser, Limits(80, ()))
        )
    plain, drafted = replies
    assert drafted.tokens == plain.tokens
    forced = [done for done in drafted.rounds if done.draft.drafter == "forced" and done.drafted]
    assert forced
    assert all(done.verdict.accepted == done.drafted for done in forced)
    drafter = ForcedDrafter()
    for begun, text, certain in (([3], [3, 9], True), ([3], [3, 9, 4, 7, 1], False)):
        drafter.begin(begun, chooser)
        forecast = drafter.forecast(text)
        assert (forecast is not None and set(forecast.chances) == {1.0}) is certain
    drafter.begin([3, 9], GREEDY)
    assert drafter.forecast([3, 9]) is None, "without a constraint nothing is certain"


def test_what_a_picture_is_in_a_text_is_never_drafted() -> None:
    text = [1, 2, 3, -7, -9, 4, 5, 1, 2]
    drafter = LookupDrafter(())
    drafter.begin(text, GREEDY)
    request = next(speculative_round(text, Plan(drafter, 5), GREEDY))
    assert list(request.tokens) == [*text, 3]
    assert request.rows == 2
    draft = Draft((1, -2, 3), (0.5,) * 3, "x", (1.0,) * 3, ((4,), (5,), (6,)), (2, 0))
    assert draft.until(1) == Draft((1,), (0.5,), "x", (1.0,), ((4,),), (0,))
