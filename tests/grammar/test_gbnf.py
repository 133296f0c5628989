"""GBNF: what a grammar of llama.cpp's allows is allowed, and what is wrong is said with its place."""

import re
import time

import pytest

from localspec.errors import UsageError
from localspec.grammar import gbnf as gbnf_module
from localspec.grammar import require_sound, sources
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, texts
from tests.support.checks import refuses

GRAMMARS = (
    r"""root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
""",
    r"""# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
""",
    'root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n',
    'root ::= "a"{2,5} b{3} | (c | "d"){0,20}\nb ::= [^a-c\\]x]+ # hi\nc ::= . "\\u00e9"',
    'root ::= x ( "," x ){0,600}\r\nx::= ("a" | "b"\n | "c")? "z"',
    'root ::=\n  "yes" |\n  "no"',
)
ARITHMETIC, JSON, LIST = GRAMMARS[:3]


@pytest.mark.parametrize(
    ("gbnf", "taken", "refused"),
    [
        # A term ends in white space, line ends too: read greedily, no line would ever end.
        (ARITHMETIC, ["a+1=b\n", "x*(y-2)=7 \n", "a=1\nb=2\n"], ["a=1", "a+=1\n", "=\n"]),
        (JSON, ['{"a": [1, {"b": null}], "c":"é\\n"}', "{}", '{ "x":-1.5e3 }'], ["[]", '{"a"}', "{'a':1}"]),
        (LIST, ["- a\n- bÉ\n", "- ¾\n"], ["- \n", "- a\r\n", "- a"]), (GRAMMARS[3], ["aayyy", "ddxé", "", "aaaaayyy\n"], ["a", "aaabbb", "xx"]),
        (GRAMMARS[4], ["z", "az,bz,z"], ["", "a", "az,"]), (GRAMMARS[5], ["yes", "no"], ["y", "yesno", ""]),
        ('root ::= [a-z]+ "end"', ["endend", "enxend"], ["end", "endx"]),
        ('root ::= "\\u00e9" [\\U0001F600-\\U0001F64F] "\\x41" .', ["é😀A\n", "é😀AA"], ["é😀A", "ea"]),
        ('root ::= (a?)* ("b"+)? [^\\]\\-x-z]\na ::= "a"', ["aab?", "c"], ["-", "]", "y", "b-"]),
        ('root ::= root "A" | "b"', ["b", "bAA"], ["A", "ba"]), ('root ::= "a" root? "c"', ["ac", "aacc"], ["aac", ""]),
        ('root ::= fooBar foo-bar # foo\nfooBar ::= "x"\n\n  foo-bar ::= (\n"y" # z\n| "z") |\n "w"', ["xy", "xw"], ["yx"]),
        ("root ::= ", [""], ["a"]), ('root ::= "/" [/] "i"i\ni ::= "a"', ["//ia"], ["//i"]),
        ('root ::= [&] [~a] [a-] [-^b] "\\t"', ["&~-^\t", "&aab\t"], ["&b-^\t"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2} "d"{ 0 , 1 }', ["aab", "aabbccd"], ["ab", "aabccc"]),
    ],
)  # fmt: skip
def test_a_grammar_takes_its_texts_and_no_others(
    gbnf: str, taken: list[str], refused: list[str]
) -> None:
    assert [takes(text, grammar=gbnf) for text in taken] == [True] * len(taken)
    assert [takes(text, grammar=gbnf) for text in refused] == [False] * len(refused)


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_texts_by_chance_are_those_of_the_grammar(count: int) -> None:
    for text in texts(count, grammar=ARITHMETIC):
        assert re.fullmatch(r"([a-z0-9_()\s+*/-]+=[a-z0-9_()\s+*/-]+\n)+", text), text
    whole = re.compile(r"(- [^\r\n\x0b\x0c\x85\u2028\u2029]+\n)+")
    assert all(whole.fullmatch(text) for text in texts(count, grammar=LIST))


@pytest.mark.parametrize(
    ("gbnf", "reason"),
    [
        ("", "no rule root"), ('answer ::= "a"', "no rule root"), ('root "a"', "no rule root"),
        ('root ::= "a', "Unexpected end of input at line 1"), ("root ::= [a-", "Unexpected end of input at line 1"),
        ('root ::= "a"\nroot ::= "b"', "the rule root is defined twice"), ('root ::= "a" b\nc ::= "x"', "Rule 'b' not found"),
        ("root ::= []", "unclosed character class"), ("root ::= [z-a]", "invalid character class range"),
        ('root ::= * "a"', "Expected name at line 1, 'root ::= ' ^ '*"), ('root ::= ("a" | ?)', "Expected ')' at line 1"),
        ('root ::= ("a"', "Expected ')' at line 1"),
        ('root ::= ("a"\nb ::= "c" )', "Expected ')' at line 2"), ('root ::= "a" )', "Expected name at line 1"),
        ("root ::= <think>", "Expected name at line 1"),
        ('root ::= "\\q"', "Invalid escape sequence"), ('root ::= "\\u12"', "escape sequence"),
        ('root ::= "\\ud800"', "is no character"), ('root ::= "a\ud800"', "half of a character"),
        ('root ::= "\x1b', "Unexpected end of input"),
    ],
)  # fmt: skip
def test_an_error_has_its_place(gbnf: str, reason: str) -> None:
    started = time.process_time()
    with pytest.raises(UsageError) as caught:
        require_sound(ReplyOptions(grammar=gbnf))
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
    assert time.process_time() - started < 10


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
