"""Markdown as models write it: blocks of code wherever they stand, and text that is no markup."""

import pytest

from localspec.markup import CodeBlock, code_blocks, language_of, parsed

PYTHON = "def f():\n    return 1"
APP = "# App\n\n```bash\nnpm i\n```\n\n## Use"


def fenced(language: str, text: str) -> CodeBlock:
    return CodeBlock(language, text, is_fenced=True)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("1. First:\n\n   ```python\n   def f():\n       return 1\n   ```", [fenced("python", PYTHON)]),
        ("- a\n  - b\n\n    ~~~go\n    x\n    ~~~\n- c", [fenced("go", "x")]),
        ("- ```sh\n  ls\n  ```", [fenced("sh", "ls")]),
        ("> ```js\n> x\n> ```", [fenced("js", "x")]),
        ("  ```py\n  x\n    y\n  ```", [fenced("py", "x\n  y")]),
        (f"```markdown\n{APP}\n```\nafter", [fenced("markdown", APP)]),
        ("~~~md\n# A\n~~~py\nx\n~~~\n~~~\n```c\ny\n```", [fenced("md", "# A\n~~~py\nx\n~~~"), fenced("c", "y")]),
        ("```md\n```md\n```c\nx\n```\n```\n```", [fenced("md", "```md\n```c\nx\n```\n```")]),
        ("````md\n```c\nx\n````", [fenced("md", "```c\nx")]),  # the shorter one is no block of its own
        ("```python\ns = '''\n```c\n'''\n```", [fenced("python", "s = '''\n```c\n'''")]),
        ("```py\r\nx = 1\r\ny = 2\r\n```\r\n", [fenced("py", "x = 1\ny = 2")]),
        ("```c\n```", [fenced("c", "")]),
        ("```c\nhalf", [fenced("c", "half")]),
        *((f'```py\n<file name="a.py">\nx\n{end}```', [fenced("py", "x")]) for end in ("", "</file>\n")),
        ("```html\n<p>\n</file>x\n```", [fenced("html", "<p>\n</file>x")]),
        ("Text\n\n    indented\n", [CodeBlock("", "indented", is_fenced=False)]),
        ("```x``` in a line, `y`, and ```", []),
    ],
)  # fmt: skip
def test_code_is_found_wherever_it_stands(text: str, blocks: list[CodeBlock]) -> None:
    assert code_blocks(text) == blocks


def test_a_language_is_what_a_fence_names() -> None:
    for info, language in {"python title='x'": "python", "rust,ignore": "rust", "ts{1,3}": "ts", "c++": "c++", "py:a.py": "py", "{.r}": "", "": ""}.items():  # fmt: skip
        assert language_of(info) == language


def words(text: str) -> str:
    """Return the text of an answer in which « » stand for what is set off."""
    signs = {1: "«", -1: "»"}
    return "".join(
        signs.get(each.nesting, "\n" if each.type == "hardbreak" else each.content)
        for token in parsed(text)
        for each in token.children or ()
    )


@pytest.mark.parametrize(
    "text",
    [
        "Map<K, List<V>>, <your name>, a<b and c>d, <!-- why -->, <?php ?>, <br/>",
        "&lt;p&gt; &amp; &#65; AT&T",
        "2*3*4, x**2 + y**2, a*b*c, __init__, __name__, f(*args, **kwargs)",
        r"\(x\) \[y\] \frac{a}{b} \\ C:\.ssh \d+\. C:\Users\<you> grep 'a\|b'",
        "[1], [ref][id], <https://example.org>, ![alt *x*](a.png 'T')",
        "one\n  two\n    three",
        "[id]: http://example.org 'Title'",
    ],
)
def test_what_is_no_markup_stays(text: str) -> None:
    assert words(text) == text


def test_what_is_markup_is_set_off() -> None:
    for text, visible in {
        "**bold** and *em*, **W**orld": "«bold» and «em», «W»orld",
        "这是**重点**内容": "这是«重点»内容",
        r"\*no\* a\_b \`c\` C\#": "*no* a_b `c` C#",
        "[a *b*](u?c=1&amp;d 'T')": "«a «b»» (u?c=1&amp;d 'T')",
        "_a_ ~~b~~": "«a» «b»",
    }.items():
        assert words(text) == visible
