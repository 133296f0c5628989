from pathlib import Path

import pytest

from localspec.errors import PairMismatch
from localspec.models.gguf import GgufHeader, parse_header, read_header
from localspec.models.pairs import (
    Compatibility,
    Fit,
    compare_tokenizers,
    require_compatible,
)
from localspec.models.tokenizer import shared_percent
from tests.models.gguf_builder import TOKENS, Content, model_file


def header(name: str = "target.gguf", **changes: Content | None) -> GgufHeader:
    return parse_header(model_file(**changes), name=name)


def compare(**draft: Content | None) -> Compatibility:
    return compare_tokenizers(header().tokenizer, header("draft.gguf", **draft).tokenizer)


def test_equal_tokenizers_are_identical() -> None:
    fit = compare()
    assert fit == Compatibility(Fit.IDENTICAL, "", None, 100.0, 6)
    assert require_compatible(header(), header("draft.gguf")) == fit


def test_a_padded_copy_is_compatible_either_way_round() -> None:
    padded = header(tokens=[*TOKENS, "[PAD6]", "[PAD7]"], token_type=[2, 3, 3, 1, 1, 1, 5, 5])
    for target, draft in ((padded, header()), (header(), padded)):
        fit = compare_tokenizers(target.tokenizer, draft.tokenizer)
        assert fit.verdict is Fit.COMPATIBLE
        assert fit.shared_vocab == 6
        assert fit.overlap_percent == 75.0
        assert fit.notes == (
            f"vocabularies have {target.tokenizer.n_vocab} and {draft.tokenizer.n_vocab} tokens",
        )


def test_the_first_token_with_two_meanings_is_named() -> None:
    fit = compare(tokens=["<unk>", "<s>", "</s>", "x", "b", "y"])
    assert fit.verdict is Fit.INCOMPATIBLE
    assert fit.first_difference is not None
    assert fit.first_difference.token == 3
    assert (fit.first_difference.target_piece, fit.first_difference.draft_piece) == ("a", "x")
    assert fit.overlap_percent == pytest.approx(100 * 4 / 6)


def test_a_mismatch_names_the_token_both_files_and_the_way_out() -> None:
    draft = header("draft.gguf", tokens=["<unk>", "<s>", "</s>", "b", "a", "ab"])
    with pytest.raises(PairMismatch) as caught:
        require_compatible(header(), draft)
    assert str(caught.value) == (
        "token 3 is 'a' in target.gguf and 'b' in draft.gguf: their ids mean different things; "
        "use --draft lookup or another draft model, "
        "or name this one with --draft-model to draft across vocabularies"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "llama"}, "tokenizer kinds are 'gpt2' and 'llama'"),
        ({"token_type": [2, 3, 3, 1, 6, 1]}, r"token 4 \('b'\) is of type 1 and of type 6"),
    ],
)
def test_equal_tokens_are_not_enough(change: dict[str, Content | None], reason: str) -> None:
    assert compare(**change).verdict is Fit.INCOMPATIBLE
    with pytest.raises(PairMismatch, match=f"target.gguf and draft draft.gguf .*{reason}"):
        require_compatible(header(), header("draft.gguf", **change))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"eos_token_id": 1}, "special tokens differ: those of the target count"),
        ({"add_bos_token": False}, "flags differ: those of the target count"),
        ({"pre": None}, "pre-tokenizers differ: those of the target count"),
        ({"pre": "other"}, "pre-tokenizers differ: those of the target count"),
        ({"merges": ["b a"]}, "merges differ: those of the target count"),
        ({"merges": None}, "merges differ: those of the target count"),
        ({"scores": [0, 1, 2, 3, 4, 5]}, "scores differ: those of the target count"),
        (
            {"token_type": [2, 3, 3, 1, 4, 1]},
            "types of tokens differ: those of the target count",
        ),
        (
            {"token_type": None, "eot_token_id": 2},
            "types of tokens and special tokens differ: those of the target count",
        ),
    ],
)
def test_what_does_not_change_ids_is_reported_only(
    change: dict[str, Content | None], note: str
) -> None:
    fit = compare(**change)
    assert fit.verdict is Fit.COMPATIBLE
    assert fit.notes == (note,)


def test_tokens_are_shared_where_they_stand_for_the_same_bytes() -> None:
    target = header(tokens=["<unk>", "<s>", "</s>", "a", "Ġb", "Ċ"]).tokenizer
    words = header(
        model="llama",
        tokens=["<unk>", "<s>", "</s>", "<0x0A>", "▁b", "a", "▁a", "b"],
        token_type=[2, 3, 3, 6, 1, 1, 1, 1],
    ).tokenizer
    assert shared_percent(target, words) == 60, "a line feed, b after a space, and a"
    assert shared_percent(words, target) == 100
    alien = header(tokens=["<unk>", "<s>", "</s>", "x", "y", "z"]).tokenizer
    assert shared_percent(target, alien) == 0
    for unknown in ("no_vocab", "bert"):
        assert shared_percent(target, header(model=unknown).tokenizer) == 0
        assert shared_percent(header(model=unknown).tokenizer, target) == 0


@pytest.mark.parametrize("kind", [1, 4, 6])
def test_what_is_no_piece_of_its_alphabet_is_shared_as_it_stands(kind: int) -> None:
    odd = [b"<unk>", b"<s>", b"</s>", b"<0xZZ>", "語".encode(), b"\xff"]
    types = [2, 3, 3, kind, kind, kind]
    target, draft = (header(tokens=odd, token_type=types).tokenizer for _ in range(2))
    assert shared_percent(target, draft) == 100


def test_nothing_in_common_is_no_reason_to_name_it() -> None:
    alien = header("draft.gguf", tokens=["<unk>", "<s>", "</s>", "x", "y", "z"])
    with pytest.raises(PairMismatch) as caught:
        require_compatible(header(), alien)
    assert str(caught.value).endswith("use --draft lookup or another draft model")


def test_a_piece_cannot_break_the_line_or_fill_the_screen() -> None:
    draft = header("draft.gguf", tokens=["\n" * 3000, *TOKENS[1:]])
    with pytest.raises(PairMismatch) as caught:
        require_compatible(header(), draft)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_lengths_are_compared_where_texts_run_together() -> None:
    # The same characters, cut differently: equal when joined, different as tokens.
    assert compare(tokens=["<unk>", "<s>", "</s>", "a", "ba", "b"]).first_difference is not None


def test_scores_are_compared_where_both_files_have_them() -> None:
    scores = [0, 1, 2, 3, 4, 5]
    target = header(scores=scores).tokenizer
    assert compare_tokenizers(target, header(scores=scores).tokenizer).verdict is Fit.IDENTICAL
    fit = compare_tokenizers(target, header(scores=[0, 1, 2, 4, 3, 5]).tokenizer)
    assert fit.verdict is Fit.COMPATIBLE
    assert fit.notes == ("scores differ: those of the target count",)


@pytest.mark.pair
def test_the_real_pair_is_identical(qwen_target_path: Path, qwen_draft_path: Path) -> None:
    fit = require_compatible(read_header(qwen_target_path), read_header(qwen_draft_path))
    assert fit.verdict is Fit.IDENTICAL
    assert fit.shared_vocab == 151936


@pytest.mark.pair
def test_smollm2_can_draft_for_qwen_across_vocabularies_alone(
    qwen_target_path: Path, smollm2_path: Path
) -> None:
    target, draft = read_header(qwen_target_path), read_header(smollm2_path)
    with pytest.raises(PairMismatch, match=r"token 0 is '!' in .* and '<\|endoftext\|>' in "):
        require_compatible(target, draft)
    assert shared_percent(target.tokenizer, draft.tokenizer) == pytest.approx(79.8, abs=0.1)
