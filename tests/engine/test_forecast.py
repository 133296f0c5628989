"""Why something was drafted, by hand: costs that a person can add up."""

from dataclasses import replace

import pytest

from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.engine.forecast import (
    USUAL_CHANCE,
    by_draft_model,
    chance_of_acceptance,
    draft_note,
    no_drafting,
    reason,
)

# A target pass costs 1 s a step and half a second more for every drafted token.
TARGET = PassCosts((1, 2, 4), (1.0, 1.5, 2.5))
CHEAP, DEAR = PassCosts((1,), (0.1,)), PassCosts((1,), (0.6,))
FLAT, STEEP = PassCosts((1, 64), (1.0, 1.2)), PassCosts((1, 64), (1.0, 64.0))
PAIR, DEAR_PAIR = PairCosts(TARGET, CHEAP), PairCosts(TARGET, DEAR)


def drafted(
    drafted: int, accepted: int, draft_s: float, verify_s: float, *, by: str = "model"
) -> Round:
    draft = Draft((7,) * drafted, (0.5,) * drafted, by)
    spent = Spent(draft_s=draft_s, verify_s=verify_s)
    return Round(draft, Verdict(accepted, 8), (7,) * accepted + (8,), spent)


PLAIN = drafted(0, 0, 0.0, 1.0, by="off")
ROUNDS = [drafted(3, 3, 0.3, 2.5), drafted(3, 1, 0.3, 2.5), PLAIN]
LOOKED_UP = drafted(3, 3, 0.0, 2.5, by="lookup")


def test_the_chance_of_acceptance_is_of_what_was_judged() -> None:
    # Accepted were 4 of the 5 that were judged.
    assert chance_of_acceptance(by_draft_model(ROUNDS)) == pytest.approx(0.8)
    assert chance_of_acceptance(by_draft_model([LOOKED_UP])) is None
    # Nor was rejected what the end of the text cuts.
    assert chance_of_acceptance([replace(ROUNDS[0], confirmed=ROUNDS[0].confirmed[:1])]) == 1
    assert draft_note(ROUNDS, PAIR, None) == draft_note([LOOKED_UP], None, None) == ""
    assert "slow this machine down by 17%" in draft_note([LOOKED_UP], DEAR_PAIR, None)


@pytest.mark.parametrize(
    ("costs", "chance", "words"),
    [
        # One token, accepted three times in four: 1.75 tokens for 2.1 steps.
        (DEAR_PAIR, None, "the usual 75% acceptance it would slow this machine down by 17%"),
        (DEAR_PAIR, 1.0, "its 100% acceptance it would slow this machine down by 5%"),
        (replace(DEAR_PAIR, sure=False), None, "the machine was busy when it was measured"),
    ],
)
def test_where_drafting_is_off_its_price_is_noted(
    costs: PairCosts, chance: float | None, words: str
) -> None:
    assert USUAL_CHANCE == 0.75
    assert words in draft_note([PLAIN], costs, chance)
    for free in (None, CHEAP):
        assert draft_note([PLAIN], PairCosts(TARGET, free), 0.9) == ""


BESIDE = "beside 4 others a draft"


@pytest.mark.parametrize(
    ("drafter", "others", "costs", "short", "detail"),
    [
        ("off", 4, None, "it is switched off", ", or the model cannot take drafts back"),
        ("auto", 0, None, "nothing to look up", " that was worth it"),
        ("auto", 1, PairCosts(FLAT), "nothing to look up", " that was worth it"),
        ("auto", 4, PairCosts(STEEP), "would be slower here", f": {BESIDE} costs more than"),
        ("auto", 4, PairCosts(FLAT, DEAR), "would be slower here", f": {BESIDE} of this model costs"),
        ("auto", 1, PairCosts(FLAT, CHEAP), "would be slower here", ": no draft promised to"),
        ("auto", 0, DEAR_PAIR, "would be slower here", ": a draft of this model costs more"),
        ("auto", 0, PairCosts(FLAT, CHEAP, sure=False), "would be slower here (measured while busy)", ": no draft promised to"),
        ("auto", 4, PairCosts(STEEP, sure=False), "would be slower here (measured while busy)", f": {BESIDE} costs more"),
        ("lookup", 0, PairCosts(FLAT), "nothing to look up", " that was worth it"),
        ("forced:3", 0, None, "forced had nothing to draft", ""),
    ],
)  # fmt: skip
def test_why_nothing_was_drafted_is_the_same_in_the_line_and_in_the_sentence(
    drafter: str, others: int, costs: PairCosts | None, short: str, detail: str
) -> None:
    counts = AcceptanceStats(rounds=1)
    assert no_drafting(counts, drafter, costs, others) == f"no drafting: {short}"
    assert reason([PLAIN], drafter, others, costs, None).startswith(f"off: {short}{detail}")
    assert no_drafting(AcceptanceStats(1, drafted=1), drafter, costs, others) == ""


def test_an_answer_without_a_round_had_nothing_to_draft() -> None:
    # Stopped while the prompt was read, or behind the first token.
    first = replace(PLAIN, draft=Draft(drafter=PROMPT))
    for rounds in ([], [first]):
        told = reason(rounds, "auto", 0, None, None)
        assert told == "off: it ended before anything could be drafted"
        assert no_drafting(AcceptanceStats(), "auto", None) == ""
    assert no_drafting(AcceptanceStats(), "off", None) == "no drafting: it is switched off"


def test_what_drafted() -> None:
    rounds = [drafted(3, 3, 0.3, 2.5), PLAIN]
    assert reason(rounds, "auto", 2, None, None) == "on: model drafted in 1 of 2 rounds"
    rounds = [drafted(3, 3, 0.3, 2.5), LOOKED_UP]
    assert reason(rounds, "auto", 0, None, None).startswith("on: model and lookup drafted in 2 of")
