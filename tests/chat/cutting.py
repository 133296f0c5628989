from typing import TypeVar

from hypothesis import strategies as st

Text = TypeVar("Text", str, bytes)


def cut(data: st.DataObject, whole: Text) -> list[Text]:
    """Cut `whole` at drawn places; some chunks may be empty."""
    places: list[int] = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    starts, ends = [0, *places], [*places, len(whole)]
    return [whole[start:end] for start, end in zip(starts, ends, strict=True)]
