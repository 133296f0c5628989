"""When a draft model may try, and what speaks for it."""

from localspec.decoding.drafters.backoff import Backoff, Hindsight, own_of

RIGHT, WRONG = Hindsight(3.0, True), Hindsight(3.0, False)


def test_what_was_copied_is_left_out_also_where_a_pass_gives_fewer_rows() -> None:
    assert own_of([RIGHT, WRONG, RIGHT], (True, False, True)) == [RIGHT, RIGHT]
    assert own_of([WRONG, RIGHT], (True, False, True)) == [RIGHT]
    assert own_of([], (True, False, True)) == []


def test_no_more_is_compared_than_it_has_to_evaluate_anyway() -> None:
    backoff = Backoff()
    for _ in range(20):
        backoff.pass_over(0)
    assert backoff.look_back(8) == (True,) * 7
    assert backoff.look_back(7) == (True,) * 6
    assert backoff.look_back(6) is None
    assert backoff.look_back(0) is None
    backoff.prove()
    assert backoff.look_back(0) == ()


def test_a_token_counts_once_and_after_a_failure_new_ones_are_waited_for() -> None:
    backoff = Backoff()
    for _ in range(20):
        backoff.pass_over(0)
    backoff.settle(1.0)
    backoff.fail()
    assert backoff.failed
    for n in range(8):
        assert backoff.look_back(20) is None, n
        backoff.pass_over(0)
    assert backoff.look_back(20) == (True,) * 8


def test_who_has_earned_much_is_tried_more_often_until_something_is_copied_or_the_reply_ends() -> (
    None
):
    def rests(backoff: Backoff) -> int:
        for _ in range(6):
            backoff.settle(1.0)
            backoff.fail()
        rested = 0
        while backoff.look_back(20) is None:
            backoff.pass_over(0)
            rested += 1
        return rested

    def earning(gained: float) -> Backoff:
        backoff = Backoff()
        backoff.prove()
        backoff.settle(-gained)
        return backoff

    assert earning(8.0).earned
    assert not earning(7.0).earned
    assert rests(earning(8.0)) == 32
    assert rests(earning(7.0)) > 100
    copying, ended = earning(8.0), earning(8.0)
    copying.pass_over(2)
    ended.begin()
    assert not copying.earned
    assert not ended.earned


def test_what_was_gained_in_one_reply_earns_nothing_in_the_next() -> None:
    backoff = Backoff()
    backoff.prove()
    backoff.settle(-30.0)
    assert backoff.earned
    backoff.begin()
    backoff.settle(0.5)
    assert not backoff.earned
    backoff.settle(-8.5)
    assert backoff.earned
