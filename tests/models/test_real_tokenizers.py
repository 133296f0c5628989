"""The 19 tokenizers that come with llama.cpp, every pair of them."""

from itertools import combinations
from pathlib import Path

import pytest

from localspec.models.gguf import read_header
from localspec.models.pairs import Compatibility, Fit, compare_tokenizers
from localspec.models.tokenizer import TokenizerHeader, fingerprint

pytestmark = [pytest.mark.weights, pytest.mark.slow]

NAMES = """
    aquila baichuan bert-bge command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 gpt-neox
    llama-bpe llama-spm mpt nomic-bert-moe phi-3 qwen2 qwen35 refact starcoder
""".split()  # noqa: SIM905 - a list to be read

# Every other pair has other pieces for nearly all ids: the vocabularies were trained apart. That
# starcoder and refact, both of 49,000 tokens, or falcon and mpt, both of the English web, are no
# exceptions is the point of judging files. These three are, each read by hand:
FITTING = {
    # MPT was trained with the tokenizer of GPT-NeoX-20B: 50,432 equal pieces, types and merges. Only
    # the file of mpt names its pre-tokenizer.
    ("gpt-neox", "mpt"): ("pre-tokenizers differ: those of the target count",),
    # Phi-3 extends Llama 2's 32,000 tokens by 64 control tokens (Phi-3 report, arXiv:2404.14219), and
    # gives <unk>, <s> and </s> other types and scores, which their meaning does not depend on.
    ("llama-spm", "phi-3"): (
        "vocabularies have 32000 and 32064 tokens",
        "types of tokens and scores and special tokens differ: those of the target count",
    ),
    # llama.cpp's file for Qwen3.5 is Qwen2's with another pre-tokenizer, which splits combining marks
    # from letters or does not. Only the target's splits text.
    ("qwen2", "qwen35"): ("pre-tokenizers differ: those of the target count",),
}


@pytest.fixture(scope="module")
def tokenizers(vocabularies: dict[str, Path]) -> dict[str, TokenizerHeader]:
    return {name: read_header(path).tokenizer for name, path in vocabularies.items()}


@pytest.fixture(scope="module")
def verdicts(tokenizers: dict[str, TokenizerHeader]) -> dict[tuple[str, str], Compatibility]:
    return {
        (one, other): compare_tokenizers(tokenizers[one], tokenizers[other])
        for one, other in combinations(sorted(tokenizers), 2)
    }


def test_all_are_here(verdicts: dict[tuple[str, str], Compatibility]) -> None:
    assert set(verdicts) == set(combinations(NAMES, 2))
    assert len(verdicts) == 171


def test_three_pairs_fit_and_none_is_identical(
    verdicts: dict[tuple[str, str], Compatibility],
) -> None:
    fitting = {pair: fit for pair, fit in verdicts.items() if fit.verdict is not Fit.INCOMPATIBLE}
    assert {pair: fit.notes for pair, fit in fitting.items()} == FITTING
    assert {fit.verdict for fit in fitting.values()} == {Fit.COMPATIBLE}


def test_the_other_168_have_an_id_with_two_meanings_and_little_in_common(
    verdicts: dict[tuple[str, str], Compatibility], tokenizers: dict[str, TokenizerHeader]
) -> None:
    for (one, other), fit in verdicts.items():
        if (one, other) in FITTING:
            continue
        different = fit.first_difference
        assert fit.verdict is Fit.INCOMPATIBLE
        assert different is not None
        token = different.token
        assert different.target_piece == tokenizers[one].piece(token)
        assert different.draft_piece == tokenizers[other].piece(token)
        assert different.target_piece != different.draft_piece
        assert list(tokenizers[one].tokens[:token]) == list(tokenizers[other].tokens[:token])
        assert fit.overlap_percent < 5


def test_a_verdict_does_not_depend_on_who_drafts(
    verdicts: dict[tuple[str, str], Compatibility], tokenizers: dict[str, TokenizerHeader]
) -> None:
    for (one, other), fit in verdicts.items():
        turned = compare_tokenizers(tokenizers[other], tokenizers[one])
        assert (turned.verdict, turned.overlap_percent) == (fit.verdict, fit.overlap_percent)
        assert turned.shared_vocab == fit.shared_vocab


def test_each_is_identical_with_itself_and_has_a_fingerprint_of_its_own(
    tokenizers: dict[str, TokenizerHeader],
) -> None:
    for tokenizer in tokenizers.values():
        fit = compare_tokenizers(tokenizer, tokenizer)
        assert (fit.verdict, fit.notes, fit.overlap_percent) == (Fit.IDENTICAL, (), 100.0)
    assert len({fingerprint(tokenizer) for tokenizer in tokenizers.values()}) == 19
