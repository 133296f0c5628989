"""What ctypes does not check: rows within their buffers, buffers that outlive their readers, nothing left of what was freed."""

import ctypes
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.decoding.model import Logits
from localspec.decoding.round import StopReason
from localspec.launch.load import load
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaContext
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from tests.llama import tiny_mamba

pytestmark = [pytest.mark.weights, pytest.mark.slow]
OPTIONS = LoadOptions(n_ctx=512, n_batch=16, threads=1).exact()
QUESTION = (
    "Repeat five times: the cat sat on the mat and looked at the dog, and the dog at the cat."
)
on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc says it")


@dataclass(slots=True)
class Audit:
    """Every native pass and every row that is read, checked against what llama.cpp says of them."""

    passes: int = 0
    rows: int = 0
    views: list["weakref.ref[Logits]"] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)


def check_pass(context: NativeContext, parts: Sequence[Part]) -> None:
    assert 1 <= sum(len(part.tokens) for part in parts) <= context.n_batch
    assert sum(part.rows for part in parts) <= context.max_rows
    for part in parts:
        assert 0 <= part.rows <= len(part.tokens)
        assert 0 <= part.n_past <= part.n_past + len(part.tokens) <= context.n_ctx
        assert all(0 <= token < context.model.vocabulary.n_vocab for token in part.tokens)
        assert part.n_past == context.held(part.sequence)


def check_rows(context: NativeContext, count: int, view: Logits) -> None:
    """See that rows are those of the last pass, no more, and lie where llama.cpp has them."""
    vocabulary = native.llama_model_get_vocab(context.model.handle)
    assert view.shape == (count, native.llama_vocab_n_tokens(vocabulary))
    assert view.flags.c_contiguous
    for row in range(count):
        # Counted from the end, llama.cpp checks the number itself, and gives nothing beyond.
        pointer = native.llama_get_logits_ith(context.handle, row - count)
        assert view[row].ctypes.data == ctypes.cast(pointer, ctypes.c_void_p).value
    assert not native.llama_get_logits_ith(context.handle, -count - 1), "more rows than asked"


def in_use() -> tuple[int, int, int]:
    """Return what this process has: threads, descriptors, and KB of anonymous memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return int(status["Threads"]), descriptors, int(status["RssAnon"].split()[0])


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Audit:
    """An audit of everything that a test does."""
    audit, decode, rows = Audit(), NativeContext.decode, NativeContext.rows

    def audited_decode(context: NativeContext, parts: Sequence[Part]) -> None:
        audit.given[id(context)] = 0
        check_pass(context, parts)
        decode(context, parts)
        audit.passes += 1
        audit.given[id(context)] = sum(part.rows for part in parts)

    def audited_rows(context: NativeContext, count: int) -> Logits:
        view = rows(context, count)
        assert count == audit.given[id(context)], "rows of another pass"
        check_rows(context, count, view)
        audit.rows += count
        audit.views.append(weakref.ref(view))
        return view

    monkeypatch.setattr(NativeContext, "decode", audited_decode)
    monkeypatch.setattr(NativeContext, "rows", audited_rows)
    return audit


def loaded(path: Path, draft: str, options: LoadOptions = OPTIONS) -> Assistant:
    """Load SmolLM2, with itself as draft model where one drafts: passes of both, and of every width."""
    small = str(path) if draft.startswith("model") else None
    launch = LaunchOptions(target=str(path), draft_model=small, draft=draft, load=options)
    return load(make_plan(launch)).assistant


def test_a_stop_in_any_pass(six_layers_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafting = loaded(six_layers_path, "model:3")
    models, made, stop_in, decode = drafting.models, list[int](), list[int](), native.llama_decode
    assert models.draft_model is not None

    def counted(*arguments: Any) -> Any:
        if stop_in == [len(made)]:
            models.cancel.set()  # after the flag was looked at: llama.cpp has to see it
        made.append(1)
        return decode(*arguments)

    monkeypatch.setattr(native, "llama_decode", counted)
    whole = answer(drafting, 6)
    passes = len(made)
    assert passes > 10
    for number in range(passes):
        for context in (models.target, models.draft_model):
            context.truncate(0)
        made.clear()
        stop_in[:] = [number]
        cut = answer(drafting, 6)
        assert cut.stop_reason is StopReason.CANCELLED
        assert len(made) == number + 1, "not a pass more"
        assert cut.tokens == whole.tokens[: len(cut.tokens)]
        stop_in.clear()
        models.cancel.clear()
        again = answer(drafting, 6)
        assert (again.tokens, again.stop_reason) == (whole.tokens, whole.stop_reason)
    drafting.close()


def answer(assistant: Assistant, max_tokens: int, temperature: float = 0.0) -> Reply:
    sampling = SamplingParams(temperature=temperature)
    return assistant.reply(QUESTION, ReplyOptions(sampling, seed=3, max_tokens=max_tokens))


@pytest.mark.parametrize("draft", ["off", "lookup:4", "model:3"])
def test_every_row_lies_in_its_buffer(audit: Audit, six_layers_path: Path, draft: str) -> None:
    assistant = loaded(six_layers_path, draft)
    replies = [answer(assistant, 24, temperature) for temperature in (0.0, 0.9)]
    assistant.close()
    gc.collect()
    assert audit.passes > 20
    assert audit.rows > 30
    assert [view for view in audit.views if view() is not None] == []
    assert replies[0].text  # what stays is a copy


def test_an_audit_sees_a_row_too_many(audit: Audit, smollm2: LlamaModel) -> None:
    context = LlamaContext(smollm2)
    context.logits([1, 2, 3], rows=2)
    with pytest.raises(AssertionError, match="rows of another pass"):
        context.native.rows(3)
    context.close()


def check_no_growth(act: Callable[[], None], times: int, most_kb: int) -> None:
    """See that something leaves nothing behind: a leak shows whenever it is done, what else the process does not."""
    for _ in range(3):
        gc.collect()
        before = in_use()
        for _ in range(times):
            act()
        gc.collect()
        after = in_use()
        if after[0] <= before[0] and after[1] <= before[1] and after[2] - before[2] < most_kb:
            return
    raise AssertionError(f"{before} became {after}")


@on_linux
def test_loads_and_switches_leave_nothing_behind(smollm2_path: Path, tmp_path: Path) -> None:
    path = tiny_mamba.write(tmp_path / "tiny.gguf")

    def load_tiny() -> None:
        model = LlamaModel(path, LoadOptions(n_ctx=64, threads=1))
        LlamaContext(model).logits([1, 2, 3], rows=1)
        model.close()

    def switch() -> None:
        assistant = loaded(smollm2_path, "lookup:4")
        answer(assistant, 3)
        assistant.close()
        load_tiny()

    for act, before, times, most_kb in ((load_tiny, 20, 100, 4096), (switch, 2, 4, 16_384)):
        for _ in range(before):
            act()
        # A copy of the weights that stayed would be 90 MB and more.
        check_no_growth(act, times, most_kb)


@on_linux
def test_what_a_pair_took_is_given_back_when_it_is_closed(smollm2_path: Path) -> None:
    """Left to itself, GNU's library keeps 60 to 100 MB of it: in steps, as larger contexts follow smaller ones."""

    def left(n_ctx: int, draft: str) -> int:
        assistant = loaded(smollm2_path, draft, LoadOptions(n_ctx=n_ctx, threads=1))
        answer(assistant, 3)
        assistant.close()
        return in_use()[2]

    before = left(512, "off")
    for n_ctx in (1024, 512, 1024):
        assert left(n_ctx, "model:2") - before < 16_384
