import pytest

from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict

DRAFT = Draft((4, 3), (0.9, 0.8), "model", (1.0, 0.5), ((8, 5), (8, 5)))


def after(draft: Draft, accepted: int, next_token: int) -> Round:
    verdict = Verdict(accepted, next_token)
    return Round(draft, verdict, (*draft.tokens[:accepted], next_token))


@pytest.mark.parametrize(("correction", "rank"), [(8, 2), (5, 3), (6, None)])
def test_rank_of_a_correction_is_its_place_among_the_drafters_choices(
    correction: int, rank: int | None
) -> None:
    assert after(DRAFT, 1, correction).correction_rank == rank


def test_bonus_has_no_rank_nor_has_a_correction_of_a_drafter_that_knows_no_others() -> None:
    assert after(DRAFT, 2, 8).correction_rank is None
    assert after(Draft((4,), (0.5,), "lookup"), 0, 8).correction_rank is None


def test_only_the_prompts_own_token_is_the_first() -> None:
    assert after(Draft(drafter=PROMPT), 0, 7).is_first
    assert not after(Draft(), 0, 7).is_first
    assert not after(DRAFT, 0, 7).is_first


def test_tokens_behind_the_end_were_drafted_but_are_not_accepted() -> None:
    cut = Round(DRAFT, Verdict(2, 9), (4,))
    assert (cut.drafted, cut.accepted) == (2, 1)
    assert (after(DRAFT, 2, 9).drafted, after(DRAFT, 2, 9).accepted) == (2, 2)


@pytest.mark.parametrize(
    ("done", "origins"),
    [
        (after(Draft(drafter=PROMPT), 0, 7), ("first",)),
        (after(Draft(), 0, 7), ("plain",)),
        (after(Draft(drafter="lookup"), 0, 7), ("plain",)),
        (after(DRAFT, 0, 7), ("correction",)),
        (after(DRAFT, 1, 7), ("model", "correction")),
        (after(DRAFT, 2, 7), ("model", "model", "bonus")),
        (Round(DRAFT, Verdict(2, 9), (4,)), ("model",)),
    ],
)
def test_every_confirmed_token_has_an_origin(done: Round, origins: tuple[str, ...]) -> None:
    assert done.origins == origins


def test_what_two_rounds_spent_is_added_stage_by_stage() -> None:
    one = Spent(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert one + one == Spent(2.0, 4.0, 6.0, 8.0, 10.0, 12.0)


def test_a_round_is_its_stages_without_what_lies_between_rounds() -> None:
    spent = Spent(1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    assert spent.round_s == 31.0
    assert spent.wall_s == 63.0
    assert spent.drafting_s == 3.0
    assert spent.drafting_s + spent.verify_s + spent.aside_s == spent.wall_s
