"""Ids of pictures and sounds: what they say by themselves, whatever text is around them."""

from hypothesis import given
from hypothesis import strategies as st

from localspec.llama.media_ids import (
    chunk_end,
    chunk_start,
    last_chunk_end,
    media_ids,
    positions,
    text_end,
)

sizes = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
pieces = st.lists(st.one_of(sizes, st.lists(st.integers(0, 1 << 30), max_size=5)), max_size=6)


@given(pieces)
def test_ids_say_where_chunks_are(pieces: list[tuple[int, int] | list[int]]) -> None:
    tokens, expected, within = list[int](), 0, dict[int, int]()
    for number, each in enumerate(pieces):
        start = len(tokens)
        if isinstance(each, list):
            tokens += each
            expected += len(each)
            continue
        count, taken = each
        ids = media_ids(f"file {number}", count, taken)
        assert all(-(1 << 31) <= token < 0 for token in ids)
        assert len(ids) == count
        assert positions(ids) == taken
        assert chunk_end([*tokens, *ids, 5], start) == start + count
        tokens += ids
        expected += taken
        within |= {start + at: start for at in range(1, count)}
    assert positions(tokens) == expected
    for place in range(len(tokens) + 1):
        assert chunk_start(tokens, place) == within.get(place, place)
    behind = [at + 1 for at, token in enumerate(tokens) if token < 0]
    assert last_chunk_end(tokens) == max(behind, default=0)
    first = min((at - 1 for at in behind), default=len(tokens))
    assert text_end(tokens, 0, len(tokens)) == first


def test_ids_of_two_chunks_differ_in_the_first_and_are_the_same_after_a_restart() -> None:
    assert media_ids("one", 3, 3) == media_ids("one", 3, 3)
    assert media_ids("one", 3, 3)[0] != media_ids("two", 3, 3)[0]
    assert media_ids("one", 2, 1) == [-114619144, -1746247265]
