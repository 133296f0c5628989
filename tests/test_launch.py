"""What a launch comes to, before any weights are read."""

from pathlib import Path

import pytest

from localspec.errors import ModelFileError, ModelUnavailable, PairMismatch, UsageError
from localspec.launch import DraftMode, Launch, _Plan, _plan, prepare
from localspec.models.registry import load_registry
from tests.models.gguf_builder import TOKENS, model_file

SMALL, CODER = "smollm2-135m", "qwen2.5-coder-1.5b"
CODER_DRAFT = "qwen2.5-coder-0.5b"


@pytest.mark.parametrize(
    ("request_", "plan"),
    [
        (Launch(), _Plan(SMALL, None, "lookup", 15)),
        (Launch(draft="off"), _Plan(SMALL, None, "off", 15)),
        (Launch(draft_length=4), _Plan(SMALL, None, "lookup", 4)),
        (Launch(CODER), _Plan(CODER, None, "lookup", 15)),
        (Launch(CODER, draft="lookup"), _Plan(CODER, None, "lookup", 15)),
        (Launch(CODER, draft="model"), _Plan(CODER, CODER_DRAFT, "model", 3)),
        (Launch(CODER, draft="model", draft_length=8), _Plan(CODER, CODER_DRAFT, "model", 8)),
        (Launch(CODER, draft_model="x.gguf"), _Plan(CODER, "x.gguf", "model", 3)),
        (Launch(CODER, draft_model="x", draft="model"), _Plan(CODER, "x", "model", 3)),
        (Launch(target="t.gguf"), _Plan("t.gguf", None, "lookup", 15)),
        (Launch(target="t", draft_model="d"), _Plan("t", "d", "model", 3)),
        (Launch(target="t", draft_model="d", draft="off"), _Plan("t", None, "off", 15)),
        (Launch(target="t", draft_model="d", draft="lookup"), _Plan("t", None, "lookup", 15)),
    ],
)
def test_flags_come_to_what_is_loaded_and_what_drafts(request_: Launch, plan: _Plan) -> None:
    assert _plan(request_, load_registry()) == plan


@pytest.mark.parametrize("request_", [Launch(draft="model"), Launch(target="t", draft="model")])
def test_drafting_by_a_model_needs_one(request_: Launch) -> None:
    with pytest.raises(UsageError, match="has no draft model: name one with --draft-model"):
        _plan(request_, load_registry())


def test_a_pair_and_a_target_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="pair a and target b exclude each other"):
        Launch("a", target="b")


@pytest.mark.parametrize("draft_length", [-1, 0, 64, 999])
def test_a_draft_length_out_of_range_is_refused(draft_length: int) -> None:
    with pytest.raises(UsageError, match=f"draft_length is {draft_length}: give 1 to 63"):
        Launch(draft_length=draft_length)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(model_file())
    return path


def test_a_pair_of_files_is_checked_without_being_loaded(target: Path) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    ready = prepare(Launch(target=str(target), draft_model=str(draft_model)))
    assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, draft_model, 6)


@pytest.mark.parametrize("draft", ["off", "lookup"])
def test_a_draft_model_that_will_not_draft_is_not_looked_at(target: Path, draft: DraftMode) -> None:
    ready = prepare(Launch(target=str(target), draft_model="nowhere.gguf", draft=draft))
    assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, None, 0)


def test_a_draft_model_with_other_ids_is_refused_by_the_names_that_were_given(target: Path) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    with pytest.raises(PairMismatch) as caught:
        prepare(Launch(target=str(target), draft_model=str(draft_model)))
    assert str(target) in str(caught.value)
    assert str(draft_model) in str(caught.value)


def test_a_damaged_draft_model_is_found_before_anything_is_loaded(target: Path) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file()[:-1])
    with pytest.raises(ModelFileError, match=r"draft\.gguf"):
        prepare(Launch(target=str(target), draft_model=str(draft_model)))


def test_a_missing_draft_model_is_found_before_anything_is_loaded(target: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"there is no file .*nowhere\.gguf"):
        prepare(Launch(target=str(target), draft_model=str(target.with_name("nowhere.gguf"))))
