r"""Secrets behind escapes: in JSON, in JSON within JSON, and in code, whole and cut anywhere; behind another key, and with invisible characters inside."""

import json
import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.gates.gate import gate_of_toml, usual_gate
from localspec.gates.patterns import MAX_MATCH
from tests.chat.cutting import cut
from tests.examples import LONG, examples
from tests.gates.spelling import leaked
from tests.gates.streaming import streamed
from tests.support.secrets import FORMATS, Planted, planted

pytestmark = pytest.mark.slow

INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
SEPARATORS = ("\n", "\t", "\r\n", "é", '"', "\\", " ", "x\n", "1\b")
UNNAMED = {"password in a URL", "password by its name", "e-mail", "telephone", "payment card"}
NAMED = [each for each in FORMATS if each not in UNNAMED]
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "ascii": lambda text: json.dumps({"content": text, "ok": True}),
    "unicode": lambda text: json.dumps([text, 7], ensure_ascii=False),
    "twice": lambda text: json.dumps({"arguments": json.dumps({"content": text})}),
    "thrice": lambda text: json.dumps([json.dumps([json.dumps([text])])]),
    "code": lambda text: f"print({json.dumps(text)})  # and so on",
    "single quotes": lambda text: f"say('{json.dumps(text)[1:-1]}')",
}


def meant(value: object) -> str:
    """Return all strings of a JSON text, also of JSON in them, without what is invisible; a text that is none as it is."""
    if not isinstance(value, str):
        return str(value)
    try:
        inner = json.loads(value)
    except ValueError:
        return INVISIBLE.sub("", value)
    if isinstance(inner, dict | list):
        return "\n".join(map(meant, inner.values() if isinstance(inner, dict) else inner))
    return INVISIBLE.sub("", value)


def assert_hidden(secrets: list[Planted], whole: str, form: str) -> None:
    text, random, chunks = FORMS[form](whole), Random(whole), list[str]()
    while (at := sum(map(len, chunks))) < len(text):
        chunks.append(text[at : at + random.randint(1, 30)])
    visible = usual_gate().cleaned(text)
    assert visible == streamed(usual_gate().text(), text) == streamed(usual_gate().text(), chunks)
    assert "[masked: " in visible
    for each in (visible, meant(visible), re.sub(r"\\+(u[0-9a-f]{4}|[bfnrt])?", "", visible)):
        assert leaked(secrets, INVISIBLE.sub("", each)) == [], visible
    for _ in range({"ascii": 1, "unicode": 1, "twice": 2, "thrice": 3}.get(form, 0)):
        value = json.loads(visible)
        visible = next(iter(value.values())) if isinstance(value, dict) else value[0]


def forms(random: Random) -> list[str]:
    """Return four forms in the long form of the tests, and two by default."""
    return random.sample([*FORMS], 4 if LONG else 2)


@pytest.mark.parametrize("which", FORMATS)
def test_no_secret_passes_behind_separators_or_with_invisible_characters(which: str) -> None:
    random = Random(which)
    for form in forms(random):
        for about in ("", *(f"It is{each}" for each in SEPARATORS)):
            secret = planted(random, which)
            assert_hidden([secret], f"{about}{secret.text}{random.choice(SEPARATORS[:5])}ok", form)
        for invisible in "\u00ad\u200b\u2060\ufeff":
            secret = planted(random, which)
            text = secret.text
            for _ in range(random.randint(1, 4)):
                at = random.randrange(1, len(text))
                text = text[:at] + invisible + text[at:]
            assert_hidden([secret], f"It is\n{text} ok", form)


@pytest.mark.parametrize("which", NAMED)
def test_two_keys_without_anything_between_are_both_hidden(which: str) -> None:
    random = Random(which)
    for form in forms(random):
        for other in (which, "AWS", "Hugging Face", "npm", random.choice(NAMED)):
            one, two = planted(random, which), planted(random, other)
            assert_hidden([one, two], f"They are {one.text}{two.text} now", form)


@examples(60)
@given(st.data())
def test_any_cut_of_json_gives_the_same_and_valid_json(data: st.DataObject) -> None:
    random = Random(data.draw(st.integers(0, 1 << 30)))
    parts = [planted(random).text for _ in range(random.randint(1, 3))]
    parts += [random.choice(["\\", '"', "/\\\\", "\u2028", "😀", "\\u00", "C:\\new\\bob"]) for _ in range(4)]  # fmt: skip
    random.shuffle(parts)
    text = json.dumps({"a": " ".join(parts), "b": parts}, ensure_ascii=random.random() < 0.5)
    whole = usual_gate().cleaned(text)
    json.loads(whole)
    assert streamed(usual_gate().text(), cut(data, text)) == whole


@pytest.mark.parametrize("which", FORMATS)
def test_text_that_is_cut_in_an_escape_shows_nothing_of_a_secret(which: str) -> None:
    secret = planted(Random(which), which)
    if secret.rule in {"telephone number", "payment card"}:
        return  # of numbers the first digits are harmless
    for end in ("\\", "\\u", "\\u20", "\\\\", "\\x0"):
        text = json.dumps(secret.text)[1:-1]
        at = len(json.dumps(secret.head)[1:-1]) + 4
        visible = streamed(usual_gate().text(), [f"It is\\n{text[:at]}{end}"], cut=True)
        assert "[masked: " in visible
        assert text[at - 2 : at] not in visible.removeprefix("It is\\n" + secret.head)


def test_escape_is_read_as_it_is_written_too() -> None:
    names = {"account": r"'CORP\\[a-z]{2,8}'", "name": '"nico"', r"in \"quotes\" \\": '"tick"'}
    own = (f'[[pattern]]\nname = "{name}"\npattern = {text}\n' for name, text in names.items())
    gate, usual = gate_of_toml("use = []\n" + "".join(own), "gate"), usual_gate()
    for reader, text, visible in (
        (gate, r"log in as CORP\bob, CORP\carl", "log in as [masked: account], [masked: account]"),
        (gate, r"C:\nico C:\new", r"C:[masked: name] C:\new"),
        (gate, '"a tick"', "\"a [masked: in 'quotes' /]\""),
    ):
        assert reader.cleaned(text) == visible
    assert "aB3dE5" not in usual.cleaned(r"C:\npm_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5")


def test_invisible_characters_hold_nothing_back_for_ever() -> None:
    chunks = ["ghp_", *"\u200b" * (2 * MAX_MATCH + 500), *"\\" * 200]
    streamed(usual_gate().text(), chunks, most_held=2 * MAX_MATCH + 1)
