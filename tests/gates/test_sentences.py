"""Sentences: wherever a text is cut, it has the same ones, and nothing of it is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.gates.sentences import Sentences
from tests.chat.cutting import cut
from tests.examples import examples

TEXTS = st.lists(
    st.sampled_from(
        [
            "word ",
            "a longer one, too ",
            "end. ",
            'so!" ',
            "?\n",
            "\n",
            "3.14",
            "。",
            "x" * 90,
            ")* ",
        ]
    ),
    max_size=40,
).map("".join)


def sentences(*chunks: str) -> list[str]:
    reader = Sentences()
    found = [each for chunk in chunks for each in reader.feed(chunk)]
    return [*found, reader.flush()]


@examples(200)
@given(TEXTS, st.data())
def test_sentences_do_not_depend_on_how_the_text_came(text: str, data: st.DataObject) -> None:
    found = sentences(*cut(data, text))
    assert found == sentences(text) == sentences(*text)
    assert "".join(found) == text
    assert all(len(each) <= 400 for each in found)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("One sentence that is long. And.", ["One sentence that is long. ", "And."]),
        ("No. Yes. Well, perhaps so. Go on", ["No. Yes. Well, perhaps so. ", "Go on"]),
        ('It said "we go home now." Then', ['It said "we go home now." ', "Then"]),
        ("pi is 3.14159265358979323846 or so", ["pi is 3.14159265358979323846 or so"]),
        ("a line of code = something\nx = 1\n", ["a line of code = something\n", "x = 1\n"]),
        (
            "これは一つの文であり、とても長いのでここで終わる。次",
            ["これは一つの文であり、とても長いのでここで終わる。", "次"],
        ),
        ("w " * 300, ["w " * 200, "w " * 100]),
    ],
)
def test_text_is_cut_where_sentences_end(text: str, wanted: list[str]) -> None:
    assert [each for each in sentences(text) if each] == wanted
