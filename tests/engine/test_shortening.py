from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.answering import dropped_to_fit
from localspec.messages import Message


def length(turns: Sequence[Message]) -> int:
    return sum(len(turn.text) + 1 for turn in turns)


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=20)


@given(
    sizes=SIZES,
    system=st.none() | st.integers(0, 30),
    n_ctx=st.integers(4, 400),
    max_tokens=st.none() | st.integers(1, 100),
)
def test_as_few_turns_as_will_do_are_left_out(
    sizes: list[int], system: int | None, n_ctx: int, max_tokens: int | None
) -> None:
    said = [
        Message.assistant("x" * size) if i % 2 else Message.user("x" * size)
        for i, size in enumerate(sizes)
    ]
    first = [] if system is None else [Message.system("s" * system)]
    dropped = dropped_to_fit([*first, *said], n_ctx, max_tokens, length)
    room = n_ctx - min(n_ctx // 4, max_tokens or n_ctx)
    rest = said[dropped:]
    assert rest[0].role == "user"
    fits = length([*first, *rest]) <= room
    last_question = max(i for i, turn in enumerate(said) if turn.role == "user")
    assert fits or dropped == last_question
    if dropped:
        assert length([*first, *said[dropped - 2 :]]) > room


@pytest.mark.parametrize("turns", [[Message.assistant("x" * 50)], [Message.user("x" * 50)]])
def test_a_single_turn_is_kept_however_long(turns: list[Message]) -> None:
    assert dropped_to_fit(turns, 10, None, length) == 0
