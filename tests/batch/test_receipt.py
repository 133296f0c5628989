"""Receipt: equal where answers are, and it says what is not."""

from dataclasses import replace

from localspec.batch.receipt import difference, options_digest, receipt_from
from tests.batch.toy import RECEIPT


def test_it_is_read_as_it_was_written() -> None:
    receipt = replace(RECEIPT, draft_model="ef" * 32)
    assert receipt_from(receipt.as_json()) == receipt
    assert receipt_from(receipt.as_json()).draft_model == "ef" * 32


def test_options_have_one_digest_in_any_order() -> None:
    assert options_digest({"a": 1, "b": (2,)}) == options_digest({"b": [2], "a": 1})
    assert options_digest({"a": 1}) != options_digest({"a": 2})


def test_a_difference_is_told_in_words() -> None:
    other = replace(RECEIPT, seed=2, build="toy 2")
    assert difference(RECEIPT, other) == "another seed and another build"
