import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.tokenizer import ContentGuard, raw_tokens, tokenize_rendered
from tests.chat.toy_tokenizer import CONTROL, USER_DEFINED, ToyTokenizer, shown, spelled

TEMPLATE = "{{ '<|im_start|>' }}{{ '<think>\n\n' }}"
contents = st.lists(
    st.sampled_from([*CONTROL, *USER_DEFINED, "<", "<|", "im_end|>", "s>", "hello", " ", "é"])
).map("".join)


@given(contents)
def test_content_never_becomes_structure(content: str) -> None:
    toy = ToyTokenizer()
    marked = ContentGuard(toy, TEMPLATE).break_up(content)
    ids = tokenize_rendered(f"<|im_start|>{marked}<|im_end|>", toy, at_start=True)
    structure = [*range(len(CONTROL)), len(CONTROL) + USER_DEFINED.index("<think>")]
    assert [token for token in ids if token in structure] == [
        CONTROL.index("<|im_start|>"),
        CONTROL.index("<|im_end|>"),
    ]
    assert shown(ids) == f"<|im_start|>{content}<|im_end|>"


@given(contents)
def test_content_without_special_texts_tokenizes_with_its_surroundings(content: str) -> None:
    toy = ToyTokenizer()
    clean = content.replace("<", "(").replace("[", "(")
    text = f"<|im_start|>user\n{clean}<|im_end|>"
    marked = f"<|im_start|>user\n{ContentGuard(toy, TEMPLATE).break_up(clean)}<|im_end|>"
    assert tokenize_rendered(marked, toy, at_start=True) == toy.tokenize(
        text, add_special=False, parse_special=True
    )


def test_user_defined_tokens_stay_tokens_unless_the_template_uses_them() -> None:
    toy = ToyTokenizer()
    guard = ContentGuard(toy, TEMPLATE)
    assert guard.break_up("<table>\n\n") == "<table>\n\n"
    assert guard.break_up("<think>") != "<think>"


def test_exempt_texts_are_left_whole() -> None:
    guard = ContentGuard(ToyTokenizer(), TEMPLATE)
    assert guard.break_up("<think>", exempt=["<think>"]) == "<think>"


def test_lone_surrogates_cannot_forge_a_break() -> None:
    assert ContentGuard(ToyTokenizer(), TEMPLATE).break_up("a\ud800b\udcff") == "a\ufffdb\ufffd"
    toy = ToyTokenizer()
    assert raw_tokens("a\ud800", toy) == spelled("a\ufffd")


@pytest.mark.parametrize("text", ["<s>hello", "hello"])
def test_bos_is_added_once(text: str) -> None:
    bos_and_hello = ToyTokenizer().tokenize("<s>hello", add_special=False, parse_special=True)
    wanting = ToyTokenizer(add_bos=True)
    assert tokenize_rendered(text, wanting, at_start=True) == bos_and_hello
    assert raw_tokens(text, wanting) == bos_and_hello


def test_bos_is_not_added_unasked() -> None:
    toy = ToyTokenizer()
    hello = toy.tokenize("hello", add_special=False, parse_special=True)
    assert tokenize_rendered("hello", toy, at_start=True) == hello
    assert tokenize_rendered("hello", ToyTokenizer(add_bos=True), at_start=False) == hello
    assert (
        tokenize_rendered("hello", ToyTokenizer(add_bos=True, bos_id=None), at_start=True) == hello
    )
    assert raw_tokens("hello", toy) == hello


def test_raw_text_may_contain_special_tokens() -> None:
    assert shown(raw_tokens("<|im_start|>user\n", ToyTokenizer())) == "<|im_start|>user\n"
    assert raw_tokens("<|im_start|>", ToyTokenizer()) == [CONTROL.index("<|im_start|>")]


def test_a_vocabulary_that_puts_spaces_first_does_so_only_at_the_start() -> None:
    spm = ToyTokenizer(space_prefix=True)
    marked = ContentGuard(spm, TEMPLATE).break_up("a</s>b")
    assert shown(tokenize_rendered(marked, spm, at_start=True)) == " a</s>b"
    assert shown(tokenize_rendered("a", spm, at_start=False)) == "a"


def test_a_line_break_that_merges_is_not_cut_off() -> None:
    toy = ToyTokenizer()
    assert shown(tokenize_rendered("\nx", toy, at_start=False)) == "\nx"
