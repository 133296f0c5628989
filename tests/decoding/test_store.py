"""Drafts from what was said before: `test_same_text` shows that they change no text."""

from pathlib import Path
from random import Random

import pytest

from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.register import DRAFTERS, Material
from localspec.decoding.drafters.store import PastSource, StoreDrafter
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy
from localspec.decoding.round import Draft, Round, Verdict
from localspec.storage.token_log import TokenLog
from tests.decoding.test_lookup import CHOOSER, propose
from tests.decoding.worlds import FLAT, SaidTwice, random_world, reference, seeds
from tests.toy import GREEDY, CachedModel, run_to_end

SAID = [*range(100, 160)]


def store(text: list[int], said: list[int], known: int | None = None) -> StoreDrafter:
    """Return a drafter that has followed a text, where something else was said before."""
    known = len(text) if known is None else known
    drafter = StoreDrafter((), 2, SaidTwice(said))
    drafter.begin(text[:known], GREEDY)
    for token in text[known:]:
        drafter.learn(Round(Draft(), Verdict(0, token), (token,)))
    return drafter


def test_what_was_said_before_is_proposed_up_to_its_end() -> None:
    assert propose(store([7, 100, 101, 102], SAID), [], 3).tokens == (103, 104, 105)
    assert propose(store([7, 156, 157, 158], SAID), [], 30).tokens == (159,)
    assert propose(store([7, 8, 9], SAID), [], 3) == Draft(drafter="store")
    found = propose(store([7, 100, 101, 102], SAID), [], 3)
    assert len(found.confidences) == 3
    assert found.drafter == "store"


def test_a_place_is_followed_while_it_is_right_and_searched_anew_when_it_is_not() -> None:
    said = [1, 2, 3, 4, 5, 6, 7, 50, 51, 52, 53, 54, 55]
    drafter = store([1, 2, 3, 4, 5, 50, 51, 52], said, known=4)
    assert propose(drafter, [], 2).tokens == (53, 54)
    source = PastSource(SaidTwice(said))
    source.begin([1, 2, 3, 4])
    rights = [source.follow(token) for token in (5, 6, 9, 50, 51)]
    assert rights == [True, True, False, None, None]
    assert source.predict(9) == [52, 53, 54, 55] or source.length == 0


def test_where_the_text_itself_says_as_much_nothing_is_drafted_from_the_store() -> None:
    own = [*SAID[:10], 7, *SAID[:10]]
    assert propose(store(own, SAID), [], 3).tokens == ()
    longer = [*SAID[5:10], 7, *SAID[:10]]
    assert propose(store(longer, SAID), [], 3).tokens == (110, 111, 112)


def test_it_leaves_most_of_the_budget_to_others() -> None:
    assert StoreDrafter((), 2, SaidTwice([])).reserve > LookupDrafter.reserve + 5


def test_it_is_made_only_where_something_is_kept() -> None:
    entry = DRAFTERS["store"]
    assert entry.needs_store
    assert not any(each.needs_store for name, each in DRAFTERS.items() if name != "store")
    made = entry.make(Material((), past=SaidTwice(SAID)))
    made.begin([100, 101, 102], CHOOSER)
    assert propose(made, [], 1).tokens == (103,)  # type: ignore[arg-type]
    assert [*DRAFTERS].index("lookup") < [*DRAFTERS].index("store"), (
        "of equals the own text is asked first"
    )


@pytest.mark.parametrize("some", seeds(60, parts=2), ids=str)
def test_with_a_real_store_each_says_what_it_says_alone(tmp_path: Path, some: range) -> None:
    """Replies go into a file, and later ones are drafted from it, by a policy and always."""
    drafted = accepted = 0
    for seed in some:
        world = random_world(Random(seed))
        log = TokenLog(tmp_path / "said", seed % 3, world.n_vocab, megabytes=1)
        target = world.tables()[0]
        fixed = FixedPolicy(StoreDrafter(world.eog, 2, log), 3)
        drafter = StoreDrafter(world.eog, 2, log)
        for policy in (fixed, AdaptivePolicy(FLAT, 9, [drafter])):
            model = CachedModel(target, world.n_ctx)
            for request in world.requests:
                prompt = [*request.added][: world.n_ctx - 1]
                expected, reason = reference(prompt, world, request.max_tokens)
                reply = run_to_end(
                    prompt,
                    {Role.TARGET: model},
                    policy,
                    world.chooser(len(prompt)),
                    Limits(request.max_tokens, world.eog),
                )
                assert (*prompt, *reply.tokens) == tuple(expected)
                assert reply.stop_reason is reason
                log.append(str(seed), expected)
                drafted += sum(each.drafted for each in reply.rounds)
                accepted += sum(each.verdict.accepted for each in reply.rounds)
    assert drafted > accepted > 0
