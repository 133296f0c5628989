r"""Secrets behind escapes: in JSON, in JSON within JSON, and in code, whole and cut anywhere; behind another key, and with characters inside that nobody sees."""

import json
import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.planted import FORMATS, Planted, planted
from localspec.gates.gate import gate_of_toml, usual_gate
from localspec.gates.patterns import MAX_MATCH
from tests.chat.cutting import cut
from tests.examples import examples
from tests.gates.spelling import leaked

INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
SEPARATORS = ("\n", "\t", "\r\n", "é", '"', "\\", " ", "x\n", "1\b")
NAMED = [
    each
    for each in FORMATS
    if each not in {"password in a URL", "password by its name", "e-mail", "telephone", "payment card"}
]  # fmt: skip
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "ascii": lambda text: json.dumps({"content": text, "ok": True}),
    "unicode": lambda text: json.dumps([text, 7], ensure_ascii=False),
    "twice": lambda text: json.dumps({"arguments": json.dumps({"content": text})}),
    "thrice": lambda text: json.dumps([json.dumps([json.dumps([text])])]),
    "code": lambda text: f"print({json.dumps(text)})  # and so on",
    "single quotes": lambda text: f"say('{json.dumps(text)[1:-1]}')",
}


def meant(text: str) -> str:
    """Return all strings of a JSON text, also of JSON in them, without what nobody sees; a text that is none as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return INVISIBLE.sub("", text)
    if isinstance(value, dict | list):
        return "\n".join(map(meant_of, value.values() if isinstance(value, dict) else value))
    return INVISIBLE.sub("", text)


def meant_of(value: object) -> str:
    return meant(value) if isinstance(value, str) else str(value)


def streamed(text: str, random: Random | None) -> str:
    """Return what is seen of a text that comes by characters, or in chunks that are drawn."""
    reader, at, seen = usual_gate().text(), 0, ""
    while at < len(text):
        size = 1 if random is None else random.randint(1, 30)
        seen += "".join(each.text for each in reader.feed(text[at : at + size]))
        at += size
    return seen + "".join(each.text for each in reader.flush())


def assert_hidden(secrets: list[Planted], whole: str, form: str) -> None:
    text = FORMS[form](whole)
    seen = usual_gate().cleaned(text)
    assert seen == streamed(text, None) == streamed(text, Random(text))
    assert "[masked: " in seen
    for each in (seen, meant(seen), re.sub(r"\\+(u[0-9a-f]{4}|[bfnrt])?", "", seen)):
        assert leaked(secrets, INVISIBLE.sub("", each)) == [], seen
    if form in {"ascii", "unicode", "twice", "thrice"}:
        for _ in range({"twice": 2, "thrice": 3}.get(form, 1)):
            value = json.loads(seen)
            seen = next(iter(value.values())) if isinstance(value, dict) else value[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", FORMATS)
def test_no_secret_is_seen_behind_any_separator(which: str, form: str) -> None:
    random = Random(f"{which} {form}")
    for about in ("", *(f"It is{each}" for each in SEPARATORS)):
        secret = planted(random, which)
        assert_hidden([secret], f"{about}{secret.text}{random.choice(SEPARATORS[:5])}ok", form)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", NAMED)
def test_two_keys_without_anything_between_are_both_hidden(which: str, form: str) -> None:
    random = Random(f"{which} {form}")
    for other in (which, "AWS", "Hugging Face", "npm", random.choice(NAMED)):
        one, two = planted(random, which), planted(random, other)
        assert_hidden([one, two], f"They are {one.text}{two.text} now", form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", FORMATS)
def test_characters_that_nobody_sees_do_not_hide_a_secret(which: str, form: str) -> None:
    random = Random(f"{which} {form}")
    for invisible in "\u00ad\u200b\u2060\ufeff":
        secret = planted(random, which)
        text = secret.text
        for _ in range(random.randint(1, 4)):
            at = random.randrange(1, len(text))
            text = text[:at] + invisible + text[at:]
        assert_hidden([secret], f"It is\n{text} ok", form)


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
    reader, seen, taken = usual_gate().text(), "", 0
    for chunk in cut(data, text):
        passed = reader.feed(chunk)
        seen += "".join(each.text for each in passed)
        taken += sum(each.taken for each in passed)
        assert whole.startswith(seen)
    passed = reader.flush()
    assert seen + "".join(each.text for each in passed) == whole
    assert taken + sum(each.taken for each in passed) == len(text)


@pytest.mark.parametrize("which", FORMATS)
def test_text_that_is_cut_in_an_escape_shows_nothing_of_a_secret(which: str) -> None:
    random = Random(which)
    secret = planted(random, which)
    if secret.rule in {"telephone number", "payment card"}:
        return  # of numbers the first digits are nobody's
    for end in ("\\", "\\u", "\\u20", "\\\\", "\\x0"):
        text = json.dumps(secret.text)[1:-1]
        at = len(json.dumps(secret.head)[1:-1]) + 4
        reader = usual_gate().text()
        passed = [*reader.feed(f"It is\\n{text[:at]}{end}"), *reader.flush(cut=True)]
        seen = "".join(each.text for each in passed)
        assert "[masked: " in seen
        assert text[at - 2 : at] not in seen.removeprefix("It is\\n" + secret.head)


def test_escape_is_read_as_it_is_written_too() -> None:
    gate = gate_of_toml(
        r"""use = []
[[pattern]]
name = "account"
pattern = 'CORP\\[a-z]{2,8}'
[[pattern]]
name = "name"
pattern = "nico"
[[pattern]]
name = "in \"quotes\" \\"
pattern = "tick"
""",
        "gate",
    )
    assert gate.cleaned(r"log in as CORP\bob, CORP\carl") == "log in as [masked: account], [masked: account]"  # fmt: skip
    assert gate.cleaned(r"C:\nico C:\new") == r"C:[masked: name] C:\new"
    assert json.loads(gate.cleaned('"a tick"')) == "a [masked: in 'quotes' /]"
    usual = usual_gate().cleaned
    assert "aB3dE5" not in usual(r"C:\npm_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5")
    assert usual(r"\token = Abcd1234-xyz") == r"\token = [masked: password]"
    assert usual(r"mail:\nann@example.org") == r"mail:\n[masked: e-mail address]"


def test_what_nobody_sees_holds_nothing_back_for_ever() -> None:
    reader, most = usual_gate().text(), 2 * MAX_MATCH
    for chunk in ["ghp_", *"\u200b" * 9000, *"\\" * 200]:
        reader.feed(chunk)
        assert reader.held <= most + 1
