"""`--json-schema`, `--grammar`, `--regex` and `--lark`: where they are read from, and what is said of what cannot be."""

import json
from pathlib import Path

import pytest

from localspec.cli.options import read_grammar
from localspec.errors import UsageError
from localspec.options import ReplyOptions, changed
from tests.cli.command import PLAIN, answer, localspec

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"], "additionalProperties": False}  # fmt: skip


def asked(**flags: str) -> ReplyOptions:
    texts = {name: read_grammar(name, value) for name, value in flags.items()}
    return changed(ReplyOptions(seed=4), texts)


def test_a_schema_is_a_file_or_written_out(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(SCHEMA).encode())
    wanted = ReplyOptions(seed=4, json_schema=SCHEMA)
    assert asked(json_schema=str(file)) == asked(json_schema=json.dumps(SCHEMA)) == wanted


def test_a_grammar_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "answer.gbnf"
    file.write_text('root ::= "ü"', encoding="utf-8")
    assert asked(grammar=str(file)).grammar == 'root ::= "ü"'


def test_a_lark_grammar_is_a_file_and_a_regular_expression_is_written_out(tmp_path: Path) -> None:
    file = tmp_path / "answer.lark"
    file.write_text('start: "ü" /[0-9]+/', encoding="utf-8")
    assert asked(lark=str(file)).lark == 'start: "ü" /[0-9]+/'
    assert asked(regex="[a-z]+").regex == "[a-z]+"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "is not UTF-8 text"),
        (b'root ::= "a', "answer.gbnf: the grammar is wrong: Unexpected end of input at line 1"),
        (b"x" * (5 << 20), "has more than 4 MB"),
    ],
)
def test_a_file_that_will_not_do_is_said_so_on_one_line(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "answer.gbnf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        asked(grammar=str(file))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_strange_name_are_no_file(tmp_path: Path) -> None:
    for name in (str(tmp_path), "a\0b", ""):
        with pytest.raises(UsageError):
            asked(grammar=name)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "answer"
    file.write_text('root ::= "a"')
    with pytest.raises(UsageError, match="grammar and json_schema cannot be combined"):
        asked(json_schema="{}", grammar=str(file))
    file.write_text('start: "a"')
    with pytest.raises(UsageError, match="regex and lark cannot be combined"):
        asked(regex="a", lark=str(file))


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_run_answers_under_a_schema_and_says_where_it_was_cut() -> None:
    flags = ("--json-schema", json.dumps(SCHEMA), "--seed", "3", "--threads", "1")
    whole = answer("Where is the Eiffel tower?", *flags)
    assert set(json.loads(whole.out)) == {"city"}
    assert "not whole" not in whole.err
    words = ("run", *PLAIN, "Where is the Eiffel tower?", *flags, "--max-tokens", "3")
    cut = localspec(*words)
    assert cut.code == 6
    assert "localspec: the answer is incomplete" in cut.err
    quiet = localspec(*words, "--quiet")
    assert quiet.code == 6
    assert quiet.err == ""
