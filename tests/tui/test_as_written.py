"""What a model wrote is what one reads: tags, generics, addresses and numbers stand in the chat, while it streams and when it is done."""

import os
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from textual.strip import Strip

from localspec.display import clean
from localspec.tui.message import MessageLayout
from localspec.tui.message_text import MessageText
from localspec.tui.typeset import Typesetter
from tests.examples import LONG
from tests.tui.written import ANSWERS

WIDTHS = 60, 80, 120
TYPESETTER = Typesetter(Console(width=60, force_terminal=True), "monokai")
INLINE = [
    *("word", "two words", "42", "Größe", "漢字", "👩‍👩‍👧", "a_b_c", "x = 1", "and/or", "3.14"),
    *("<div class='a'>", "</div>", "<br/>", "<your name here>", "<T>", "<kbd>F1</kbd>", "<!-- why -->", "<?php x ?>"),
    *("List<String>", "Map<K, List<V>>", "vector<int> v;", "a<b and c>d", "Vec::<u8>::new()", "x -> y", "<https://a.b/c>"),
    *("&lt;p&gt;", "&amp;", "&nbsp;", "&#65;", "AT&T", "&copy2"),
    *("[text](http://a.b/c_d?e=1&amp;f=2 'Title')", "[a *b*](<c d>)", "![alt *x*](i.png)", "[![s](t)](u)", "[ref]", "[ref][id]"),
    *("[x](javascript:y)", "[^1]", "[1]", "- [x] done", "http://ü.de/ö%20"),
    *("`code<T>`", "``a`b``", "```inline```", "**bold**", "*em*", "_em_", "__init__", "**W**orld", "这是**重点**内容"),
    *("x**2 + y**2", "2*3*4", "a*b*c", "~~gone~~", "~5", r"\*not\*", r"\(x\)", r"C:\.ssh\_x", r"\\", "$a_1$", "C#", "#tag", "*", "_", "`"),
]  # fmt: skip
BLOCKS = [
    "# Title <a>", "Title\n===", "Title\n---", "####### seven", "---", "***", "[id]: http://a.b/c 'Title'", "[^1]: a note",
    "> quote <b>\n> more", "> > deep\nlazy", "- a\n- b\n\n  c", "* x\n  * y\n    * z", "1. a\n1. b", "3. c\n7. d", "007) e", "1.", "-",
    "1986. A great year", "- 1. - 2. <i>", "    indented <code>\n    more", "<details>\n<summary>More</summary>\n\nText\n</details>",
    "<table>\n  <tr><td>1</td></tr>\n</table>", "<script>\nlet a = 1 < 2;\n\nx()\n</script>", "<T extends Comparable<T>> void sort();",
    "| a | b |\n|---|--:|\n| 1 | List<T> |\n| <br> |", "a | b\n--|--\n1 | 2 | 3 | lost?", "| x |\n|---|\n| `a\\|b` |\n\nafter",
    "|" + "|".join("abcdefghijklmnopqrstuvwxyz") + "|\n|" + "-|" * 26, "| long |\n|--|\n| " + "antidisestablishmentarianism" * 5 + " |",
    "```python title='a.py' {1,3}\nif a < b:\n    return List[int]\n```", "```\n```", "```js\n```", "~~~c++\nstd::vector<int> v;\n~~~~",
    "``` text\nx\n\n\n\n\n\n\n\n\n\ny\n```", "1. First:\n\n   ```python\n   def f():\n       return 1\n   ```\n2. Second",
    "```markdown\n# App\n\n```bash\nnpm i\n```\n\n## Use\n```\nafter", "````md\n```\nx\n```\n````", "> ```js\n> x = 1\n> ```", "```not `a` fence",
    "   ```py\n   x\n     y\n   ```", "```open\nnever closed", ">" * 15 + " deep", "\n".join(f"{' ' * 2 * n}- {n}" for n in range(15)),
    "- a\n\n  | k | v |\n  |---|---|\n  | 1 | 2 |", "verse one  \nverse two\\\nverse three", "x" * 200, "```" + "i" * 130 + "\n" + "y" * 150 + "\n```",
    "<a" + " b" * 90 + ">", "\ttab", "a\r\nb\r\n\r\n```py\r\nc\r\n```\r\n", "\u2028line", "\x1b[31mred", "a\u202eb",
]  # fmt: skip


def letters(text: str) -> Counter[str]:
    """Return how often each letter and each digit stands in a text."""
    return Counter(each for each in text if each.isalnum())


def drawn(strips: Iterable[Strip]) -> str:
    """Return a drawing without the offer to copy a block of code."""
    return "".join(
        segment.text
        for strip in strips
        for segment in strip
        if not (segment.style and "code" in segment.style.meta)
    )


def finished(text: str, width: int) -> str:
    return drawn(TYPESETTER.markdown(text, width))


def streamed(text: str, width: int, step: int = 7) -> str:
    layout = MessageLayout(MessageText("", "", kind="reply"), lambda: TYPESETTER, growing=True)
    layout.fit(width)
    for end in range(step, len(text) + step, step):
        layout.grow(MessageText("", text[:end], kind="reply"))
    return drawn(layout.strips)


def texts() -> st.SearchStrategy[str]:
    """Return answers made of Markdown, HTML, code and generics, some of them of signs in no order."""
    inline = st.lists(st.sampled_from(INLINE), min_size=1, max_size=6)
    line = st.builds(lambda words, gap: gap.join(words), inline, st.sampled_from([" ", "", "\n"]))
    signs = st.text(st.sampled_from("ab1 \n\t<>&;*_`~#|-+.)([]!\\/:\"'=^漢"), max_size=40)
    nested = st.builds(
        lambda block, prefix: "\n".join(prefix + each for each in block.split("\n")),
        st.sampled_from(BLOCKS) | line,
        st.sampled_from(["> ", "- ", "1. ", "  ", "   ", "    ", "| "]),
    )
    blocks = st.lists(st.sampled_from(BLOCKS) | line | signs | nested, max_size=5)
    return st.builds(lambda parts, gap: gap.join(parts), blocks, st.sampled_from(["\n\n", "\n"]))


def many_texts(test: Callable[[str], None]) -> Callable[[str], None]:
    """Try 10,000 texts where LOCALSPEC_LONG_TESTS is `all`, which takes 20 minutes; 400 in the long form, and 150 by default."""
    most = 10_000 if os.environ.get("LOCALSPEC_LONG_TESTS") == "all" else 400 if LONG else 150
    return pytest.mark.long(settings(max_examples=most, deadline=None)(test))


@many_texts
@given(texts())
def test_letters_and_digits_of_a_text_are_those_of_its_drawing(text: str) -> None:
    expected = letters(clean(text))
    for width in WIDTHS:
        assert letters(finished(text, width)) == expected
    assert letters(streamed(text, WIDTHS[0])) == expected


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("width", [*WIDTHS, 40, 20])
def test_nothing_of_ten_answers_is_lost(name: str, width: int) -> None:
    expected = letters(ANSWERS[name])
    assert letters(finished(ANSWERS[name], width)) == expected
    step = 7 if width == WIDTHS[0] else 70
    assert letters(streamed(ANSWERS[name], width, step)) == expected


def test_titles_and_thoughts_are_as_written() -> None:
    heading, thoughts = (
        "Assistant<T> [b]x[/b] · version 1 of 2",
        "Is <div> or List<int> [red] &amp; meant? 1. 1.",
    )
    text = MessageText(heading, "Done.", thoughts, "+ a<b>.txt", kind="reply")
    for growing in (True, False):
        layout = MessageLayout(text, lambda: TYPESETTER, growing=growing)
        layout.unfolded = True
        layout.fit(60)
        screen = " ".join(drawn(layout.strips).split())
        for each in (heading, thoughts, "+ a<b>.txt"):
            assert each in screen
