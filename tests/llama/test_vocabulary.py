"""Tokens that llama.cpp takes for control tokens and ends by their text, and that their file calls normal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.chat.tokenizer import raw_tokens
from localspec.llama import backend
from localspec.llama.native import native
from localspec.llama.vocabulary import Vocabulary
from localspec.models.gguf import read_header
from tests.llama.tiny_gguf import byte_pieces
from tests.models.gguf_builder import Content, build

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
FIRST = 256
HTML = "<li><s>10 EUR</s> 8 EUR</li>\n<li><s>40 EUR"


def write_vocabulary(
    path: Path, tokens: Sequence[str], types: Sequence[int], template: str = "", **more: Content
) -> Path:
    """Write a GGUF of a vocabulary alone: the bytes, and some tokens behind them; the last is its EOS."""
    header: dict[str, Content] = {
        "general.architecture": "llama",
        **{f"llama.{key}": 8 for key in ("context_length", "embedding_length", "block_count")},
        **{f"llama.{key}": 2 for key in ("feed_forward_length", "attention.head_count")},
        "llama.rope.dimension_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*byte_pieces(), *tokens],
        "tokenizer.ggml.token_type": [*[NORMAL] * FIRST, *types],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": FIRST + len(tokens) - 1,
        "tokenizer.chat_template": template or "{{ messages }}",
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }
    path.write_bytes(build(header, []))
    return path


@contextmanager
def loaded(path: Path) -> Iterator[tuple[Vocabulary, Vocabulary]]:
    """Yield a vocabulary as llama.cpp has it, and as its file calls it."""
    backend.initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    model = native.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    header, handle = read_header(path), native.llama_model_get_vocab(model)
    yield Vocabulary(handle), Vocabulary(handle, header.normal_tokens, header.chat_template)
    native.llama_model_free(model)


@pytest.mark.parametrize("text", ["</s>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<EOT>"])
def test_what_a_file_calls_normal_is_text(tmp_path: Path, text: str) -> None:
    path = write_vocabulary(tmp_path / "v.gguf", [text, "<|close|>"], [NORMAL, CONTROL])
    with loaded(path) as (native_one, vocabulary):
        assert native_one.eog == {FIRST, FIRST + 1}, "by its text llama.cpp ends there"
        assert vocabulary.eog == {FIRST + 1}
        assert vocabulary.special_texts() == {"<|close|>"}
        assert vocabulary.piece(FIRST) == vocabulary.pieces()[FIRST] == text.encode()
        assert vocabulary.pieces()[FIRST + 1] == b""
        for parse in (True, False):
            ids = vocabulary.tokenize(f"a{text}b", add_special=False, parse_special=parse)
            assert FIRST not in ids
            assert b"".join(map(vocabulary.piece, ids)).decode() == f"a{text}b"
        ids = vocabulary.tokenize(f"{text}<|close|>{text}", add_special=False, parse_special=True)
        assert ids.count(FIRST + 1) == 1
        assert FIRST not in ids


def test_what_a_file_names_or_its_template_writes_is_special(tmp_path: Path) -> None:
    cases: list[tuple[int, str, dict[str, Content]]] = [
        (NORMAL, "{{ messages }}<|im_end|>", {}),
        (NORMAL, "", {"eot_token_id": FIRST}),
        (CONTROL, "", {}),
    ]
    for kind, template, more in cases:
        path = tmp_path / "v.gguf"
        write_vocabulary(path, ["<|im_end|>", "<|close|>"], [kind, CONTROL], template, **more)
        with loaded(path) as (native_one, vocabulary):
            assert vocabulary.eog == native_one.eog == {FIRST, FIRST + 1}
            assert vocabulary.special_texts() == native_one.special_texts()
            ids = vocabulary.tokenize("a<|im_end|>", add_special=False, parse_special=True)
            assert ids[1:] == [FIRST]


@pytest.mark.parametrize("name", ["qwen2", "qwen35"])
def test_html_is_read_as_the_model_learnt_it(vocabularies: dict[str, Path], name: str) -> None:
    with loaded(vocabularies[name]) as (native_one, vocabulary):
        (end,) = native_one.eog - vocabulary.eog
        assert native_one.text(end) == "</s>"
        assert end in raw_tokens(HTML, native_one)
        ids = raw_tokens(HTML, vocabulary)
        assert end not in ids
        assert ids == vocabulary.tokenize(HTML, add_special=False, parse_special=False)
        assert vocabulary.piece(end) == b"</s>"
        turn = f"<|im_start|>user\n{HTML}<|im_end|>\n"
        ids = vocabulary.tokenize(turn, add_special=False, parse_special=True)
        whole = native_one.tokenize(turn.replace("</s>", "</i>"), add_special=False, parse_special=True)  # fmt: skip
        assert len(ids) == len(whole)
        assert (ids[0], ids[-2:]) == (whole[0], whole[-2:])


def test_no_end_stands_behind_a_text_that_is_to_be_continued(tmp_path: Path) -> None:
    tokens, types = ["<|begin|>", "<|close|>"], [CONTROL, CONTROL]
    ends: dict[str, Content] = {"add_eos_token": True, "bos_token_id": FIRST}
    for begins in (True, False):
        path = write_vocabulary(
            tmp_path / "v.gguf", tokens, types, "", add_bos_token=begins, **ends
        )
        with loaded(path) as (_, vocabulary):
            assert vocabulary.tokenize("ab", add_special=True, parse_special=True)[-1] == FIRST + 1
            for text in ("ab", "<|begin|>ab", "ab<|close|>"):
                ids = raw_tokens(text, vocabulary)
                assert ids.count(FIRST) == int(begins or "<|begin|>" in text)
                assert ids.count(FIRST + 1) == int("<|close|>" in text)
