"""What ctypes does not check: rows within their buffers, buffers that outlive their readers, nothing kept of what was freed."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.decoding.round import StopReason
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.llama import tiny_mamba
from tests.llama.audit import Audit, held

pytestmark = [pytest.mark.weights, pytest.mark.slow]
OPTIONS = LoadOptions(n_ctx=512, n_batch=16, threads=1).exact()
QUESTION = (
    "Repeat five times: the cat sat on the mat and looked at the dog, and the dog at the cat."
)
GREEDY = SamplingParams(temperature=0)
on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc tells it")


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Audit:
    """An audit of everything that a test does."""
    audit = Audit()
    audit.install(monkeypatch)
    return audit


@pytest.fixture(scope="module")
def drafting(smollm2_path: Path) -> Iterator[Assistant]:
    """SmolLM2 with itself as draft model: passes of both, and of every width."""
    path = str(smollm2_path)
    launch = LaunchOptions(target=path, draft_model=path, draft="model:3", load=OPTIONS)
    assistant = load(make_plan(launch)).assistant
    yield assistant
    assistant.close()


def answered(assistant: Assistant, max_tokens: int, temperature: float = 0.0) -> Reply:
    sampling = SamplingParams(temperature=temperature)
    return assistant.reply(QUESTION, ReplyOptions(sampling, seed=3, max_tokens=max_tokens))


@pytest.mark.parametrize("draft", ["off", "lookup:4", "model:3"])
def test_every_row_lies_in_the_buffer_of_its_pass(
    audit: Audit, smollm2_path: Path, draft: str
) -> None:
    small = str(smollm2_path) if draft.startswith("model") else None
    launch = LaunchOptions(target=str(smollm2_path), draft_model=small, draft=draft, load=OPTIONS)
    assistant = load(make_plan(launch)).assistant
    for temperature in (0.0, 0.9):
        answered(assistant, 24, temperature)
    assistant.close()
    assert audit.passes > 20
    assert audit.rows > 30


def test_nobody_holds_rows_of_a_context_that_was_freed(audit: Audit, smollm2_path: Path) -> None:
    launch = LaunchOptions(target=str(smollm2_path), draft="lookup:4", load=OPTIONS)
    assistant = load(make_plan(launch)).assistant
    reply = answered(assistant, 12)
    assistant.close()
    gc.collect()
    assert audit.views
    assert [view for view in audit.views if view() is not None] == []
    assert reply.text  # what stays is a copy


def test_an_audit_sees_a_row_too_many(audit: Audit, smollm2: LlamaModel) -> None:
    context = LlamaContext(smollm2)
    context.logits([1, 2, 3], rows=2)
    with pytest.raises(AssertionError, match="rows of another pass"):
        context.native.rows(3)
    context.close()


def native_passes(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> list[int]:
    """Have `before` called with the number of every native pass; return a list that grows with each."""
    made: list[int] = []
    decode = native.llama_decode

    def counted(*arguments: Any) -> Any:
        before(len(made))
        made.append(1)
        return decode(*arguments)

    monkeypatch.setattr(native, "llama_decode", counted)
    return made


def test_after_a_stop_in_any_pass_the_next_reply_is_whole_and_equal(
    drafting: Assistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = drafting.models
    assert models.draft_model is not None
    stop_in: list[int] = []

    def before(number: int) -> None:
        if stop_in == [number]:
            models.cancel.set()  # after the flag was looked at: llama.cpp has to see it

    made = native_passes(monkeypatch, before)
    whole = answered(drafting, 6)
    passes = len(made)
    assert passes > 10
    for number in range(passes):
        for context in (models.target, models.draft_model):
            context.truncate(0)
        made.clear()
        stop_in[:] = [number]
        cut = answered(drafting, 6)
        assert cut.stop_reason is StopReason.CANCELLED
        assert len(made) == number + 1, "not a pass more"
        assert cut.tokens == whole.tokens[: len(cut.tokens)]
        stop_in.clear()
        models.cancel.clear()
        again = answered(drafting, 6)
        assert (again.tokens, again.stop_reason) == (whole.tokens, whole.stop_reason)


@on_linux
def test_two_hundred_loads_of_a_tiny_model_leave_nothing_behind(tmp_path: Path) -> None:
    path = tiny_mamba.write(tmp_path / "tiny.gguf")

    def load() -> None:
        model = LlamaModel(path, LoadOptions(n_ctx=64, threads=1))
        LlamaContext(model).logits([1, 2, 3], rows=1)
        model.close()

    for _ in range(40):
        load()
    assert_no_growth(load, 200, 4096)


def assert_no_growth(act: Callable[[], None], times: int, most_kb: int) -> None:
    """See that something leaves nothing behind: a leak shows whenever it is done, what else the process does not."""
    for _ in range(3):
        gc.collect()
        before = held()
        for _ in range(times):
            act()
        gc.collect()
        after = held()
        grown = (
            after.threads > before.threads,
            after.descriptors > before.descriptors,
            after.anonymous_kb - before.anonymous_kb >= most_kb,
        )
        if not any(grown):
            return
    raise AssertionError(f"{before} became {after}")


@on_linux
def test_switching_models_leaves_nothing_behind(smollm2_path: Path, tmp_path: Path) -> None:
    other = tiny_mamba.write(tmp_path / "tiny.gguf")

    def switch() -> None:
        launch = LaunchOptions(target=str(smollm2_path), draft="lookup:4", load=OPTIONS)
        assistant = load(make_plan(launch)).assistant
        answered(assistant, 3)
        assistant.close()
        tiny = LlamaModel(other, LoadOptions(n_ctx=64, threads=1))
        LlamaContext(tiny).logits([1, 2, 3], rows=1)
        tiny.close()

    for _ in range(2):
        switch()
    # A copy of the weights that stayed would be 90 MB and more; lab/benchmarks/native_growth.py at 889a9f3 switches two hundred times.
    assert_no_growth(switch, 5, 16_384)


@on_linux
def test_what_a_pair_held_is_given_back_when_it_is_closed(smollm2_path: Path) -> None:
    """Left to itself, GNU's library keeps 60 to 100 MB of it: in steps, as larger contexts follow smaller ones."""

    def left(n_ctx: int, draft: str) -> int:
        small = str(smollm2_path) if draft.startswith("model") else None
        options = LoadOptions(n_ctx=n_ctx, threads=1)
        launch = LaunchOptions(
            target=str(smollm2_path), draft_model=small, draft=draft, load=options
        )
        assistant = load(make_plan(launch)).assistant
        answered(assistant, 3)
        assistant.close()
        return held().anonymous_kb

    before = left(512, "off")
    for n_ctx in (1024, 512, 1024):
        assert left(n_ctx, "model:2") - before < 16_384
