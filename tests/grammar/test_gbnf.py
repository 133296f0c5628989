"""GBNF: what a grammar of llama.cpp's allows is allowed, and what is wrong is said with its place."""

import re

import pytest

from localspec.errors import UsageError
from localspec.grammar import gbnf as gbnf_module
from localspec.grammar import require_sound, sources
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, texts
from tests.support.checks import refuses

ARITHMETIC = r"""root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
LIST = 'root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n'


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_texts_by_chance_are_those_of_the_grammar(count: int) -> None:
    for text in texts(count, grammar=ARITHMETIC):
        assert re.fullmatch(r"([a-z0-9_()\s+*/-]+=[a-z0-9_()\s+*/-]+\n)+", text), text
    whole = re.compile(r"(- [^\r\n\x0b\x0c\x85\u2028\u2029]+\n)+")
    assert all(whole.fullmatch(text) for text in texts(count, grammar=LIST))


def test_bounds_of_size_and_depth_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object) -> str:
        raise RecursionError

    with monkeypatch.context() as patch:
        patch.setattr(sources, "_MAX_CHARS", 20)
        refuses("more than 20", require_sound, ReplyOptions(grammar='root ::= "a"  # as before'))
    monkeypatch.setattr(gbnf_module, "_lark", too_deep)
    refuses("nested too deeply", require_sound, ReplyOptions(grammar='root ::= ("deep")'))


@pytest.mark.parametrize(
    ("gbnf", "text"),
    [
        ('root ::= ("ab"{20}){20}', "ab" * 400), ("root ::= [a-z]{600}", "x" * 600), ('root ::= "x"{0,500} "y"', "x" * 500 + "y"),
        ("root ::= " + "(" * 12 + '"a"' + ")" * 12, "a"),
        ('root ::= r0\nr30 ::= "a"\n' + "\n".join(f"r{i} ::= r{i + 1}" for i in range(30)), "a"),
    ],
)  # fmt: skip
def test_large_grammars_are_followed_or_refused(gbnf: str, text: str) -> None:
    try:
        assert takes(text, grammar=gbnf)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017 - some of them are taken


def test_digits_and_letters_of_a_regex_are_those_of_ascii() -> None:
    cases = (r"\d", "7", "٣"), (r"\w", "a", "é"), (r"[\d.]+", "1.5", "1.٣"), (r"[^\D]", "4", "x")
    for regex, right, wrong in (*cases, (r"\W", "é", "e"), (r"\D", "٣", "3"), (r"\\d", r"\d", "7")):
        assert takes(right, regex=regex), regex
        assert not takes(wrong, regex=regex), regex


def test_each_option_binds_an_answer_and_none_leaves_it_free() -> None:
    require_sound(ReplyOptions())
    for name, source, wrong, reason in (
        ("grammar", 'root ::= "a"', "", "no rule root"), ("regex", "", "(a", "unclosed group"),
        ("lark", 'start: "a"', "start: b", "unknown name"), ("json_schema", '{"type": "null"}', {"not": {"type": "null"}}, "'not' is not supported"),
        ("json_schema", {}, {"default": float("nan")}, "NaN is not valid JSON"),
    ):  # fmt: skip
        options = ReplyOptions(**{name: source})  # type: ignore[arg-type]
        assert options.answer_grammar is not None
        assert options.answer_grammar[0] == name
        require_sound(options)
        with pytest.raises(UsageError, match=reason) as caught:
            require_sound(ReplyOptions(**{name: wrong}))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
