import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.tokenizer import ContentGuard, infill_tokens, raw_tokens, tokenize_rendered
from localspec.errors import UsageError
from localspec.messages import Infill
from tests.chat.toy_tokenizer import CONTROL, USER_DEFINED, ToyTokenizer, shown, spelled

TEMPLATE = "{{ '<|im_start|>' }}{{ '<think>\n\n' }}"
TOY, WANTING, SPM = ToyTokenizer(), ToyTokenizer(add_bos=True), ToyTokenizer(space_prefix=True)
GUARD = ContentGuard(TOY, TEMPLATE)
PIECES = [*CONTROL, *USER_DEFINED, "<", "<|", "im_end|>", "s>", "hello", " ", "é"]
CONTENTS = st.lists(st.sampled_from(PIECES)).map("".join)


def rendered(text: str, tokenizer: ToyTokenizer = TOY, *, at_start: bool = True) -> list[int]:
    return tokenize_rendered(text, tokenizer, at_start=at_start)


@given(CONTENTS)
def test_content_never_becomes_structure(content: str) -> None:
    ids = rendered(f"<|im_start|>{GUARD.break_up(content)}<|im_end|>")
    structure = [*range(len(CONTROL)), len(CONTROL) + USER_DEFINED.index("<think>")]
    begin, end = CONTROL.index("<|im_start|>"), CONTROL.index("<|im_end|>")
    assert [token for token in ids if token in structure] == [begin, end]
    assert shown(ids) == f"<|im_start|>{content}<|im_end|>"
    # What spells no special text is tokenized with its surroundings.
    clean = content.replace("<", "(").replace("[", "(")
    text = f"<|im_start|>user\n{clean}<|im_end|>"
    marked = text.replace(clean, GUARD.break_up(clean)) if clean else text
    assert rendered(marked) == TOY.tokenize(text, add_special=False, parse_special=True)


def test_what_becomes_structure_and_what_does_not() -> None:
    assert GUARD.break_up("<table>\n\n") == "<table>\n\n", "the template does not use it"
    assert GUARD.break_up("<think>") != "<think>"
    assert GUARD.break_up("<think>", exempt=["<think>"]) == "<think>"
    assert GUARD.break_up("a\ud800b\udcff") == "a\ufffdb\ufffd", "no surrogate forges a break"
    assert raw_tokens("a\ud800", TOY) == spelled("a\ufffd")
    assert shown(raw_tokens("<|im_start|>user\n", TOY)) == "<|im_start|>user\n"
    assert raw_tokens("<|im_start|>", TOY) == [CONTROL.index("<|im_start|>")]
    # A vocabulary that puts spaces first does so only at the start.
    marked = ContentGuard(SPM, TEMPLATE).break_up("a</s>b")
    assert shown(rendered(marked, SPM)) == " a</s>b"
    assert shown(rendered("a", SPM, at_start=False)) == "a"
    assert shown(rendered("\nx", at_start=False)) == "\nx", "a line break that merges is not cut"


def test_bos_is_added_once_and_only_where_the_vocabulary_wants_it() -> None:
    hello = TOY.tokenize("hello", add_special=False, parse_special=True)
    for text in ("<s>hello", "hello"):
        assert rendered(text, WANTING) == raw_tokens(text, WANTING) == [0, *hello]
    assert rendered("hello") == raw_tokens("hello", TOY) == hello
    assert rendered("hello", WANTING, at_start=False) == hello
    assert rendered("hello", ToyTokenizer(add_bos=True, bos_id=None)) == hello


FIM = {"pre": 400, "suf": 401, "mid": 402}
REPOSITORY = {**FIM, "rep": 403, "sep": 404}


def test_a_gap_stands_between_prefix_and_suffix_and_other_files() -> None:
    wanted = [400, *spelled("ab"), 401, *spelled("cd"), 402]
    assert infill_tokens(Infill("ab", "cd"), FIM, TOY, 100, 10) == wanted
    assert infill_tokens(Infill("ab", "cd"), FIM, WANTING, 100, 10) == [0, *wanted]
    assert 3 not in infill_tokens(Infill("<|im_end|>", ""), FIM, TOY, 100, 10)
    with pytest.raises(UsageError, match="cannot fill in the middle"):
        infill_tokens(Infill("a", "b"), {"pre": 1}, TOY, 100, 10)
    gap = Infill("ab", "cd", (("x.py", "one"), ("y.py", "two")))
    around = [403, *spelled("myproject\n"), 404, *spelled("x.py\none"), 404, *spelled("y.py\ntwo")]
    around += [404, *spelled("filename\n")]
    assert infill_tokens(gap, REPOSITORY, TOY, 200, 10)[: len(around)] == around
    without = infill_tokens(gap, FIM, TOY, 200, 10)
    assert len(without) == 2 * (len("\n\n--- snippet ---\n\n") - 2 + 3) + 7
    gap = Infill("a" * 500 + "b", "c" + "d" * 500, (("x.py", "e" * 500 + "f"),))
    tokens = infill_tokens(gap, FIM, TOY, 200, 20)
    assert len(tokens) == 180
    before, after = tokens.index(400), tokens.index(401)
    assert tokens[before - 1] == spelled("f")[0]
    assert tokens[after - 1 : after + 2] == [*spelled("b"), 401, *spelled("c")]
