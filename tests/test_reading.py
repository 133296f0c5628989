"""A plain copy reads for a whole assistant: one prompt has one text, in a cold start as later."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.assistant import Assistant
from localspec.launch.load import _Loading, load
from localspec.llama.batch import Part
from localspec.llama.native_context import NativeContext
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import make_plan
from localspec.plan.reading import ReadingRule
from tests.support.mixtures import mixture
from tests.support.speaking import forget

TEXT = "The bridge has five arches, and the widest of them spans 22 metres. "
PROMPTS = ["Why?", TEXT, TEXT * 4, TEXT * 9]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of Q4_K, which is repacked."""
    return mixture(tmp_path_factory.mktemp("read"), "llama", 2, "Q4_K_M")


def planned(path: Path, parallel: int = 1, draft: str = "off") -> LoadPlan:
    """Return a plan by which prompts are read by a plain copy, as if it was measured to be faster."""
    options = LoadOptions(n_ctx=1024, threads=1, gpu_layers=0)
    launch = LaunchOptions(target=str(path), draft=draft, load=options)
    plan = make_plan(launch, parallel=parallel)
    assert plan.plain is not None, "it has a type of two speeds"
    return replace(plan, plain=replace(plan.plain, rule=ReadingRule(1.0, 0.0)))


def texts(assistant: Assistant, prompts: list[str] = PROMPTS) -> Iterator[tuple[int, ...]]:
    for at, prompt in enumerate(prompts):
        forget(assistant)
        sampling = SamplingParams(temperature=0.8 * (at % 2))
        options = ReplyOptions(sampling, seed=3, max_tokens=12)
        yield tuple(assistant.reply(prompt, options, raw=True).tokens)


@pytest.mark.parametrize("draft", ["off", "lookup:3"])
def test_a_cold_start_says_what_a_warm_one_says(path: Path, draft: str) -> None:
    warm = load(planned(path, draft=draft)).assistant
    expected = [*texts(warm)]
    assert [*texts(warm)] == expected
    warm.close()
    for at, prompt in enumerate(PROMPTS):
        cold = load(planned(path, draft=draft), at_once=True).assistant
        sampling = SamplingParams(temperature=0.8 * (at % 2))
        options = ReplyOptions(sampling, seed=3, max_tokens=12)
        assert tuple(cold.reply(prompt, options, raw=True).tokens) == expected[at]
        assert [*texts(cold)] == expected, "and when it is warm"
        cold.close()


def test_nothing_is_repacked_while_the_first_prompt_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, events = threading.Event(), list[str]()
    decode, pauses = NativeContext.decode, _Loading._pauses

    def reading(context: NativeContext, parts: Sequence[Part]) -> None:
        asked.set()
        if len(events) == 0:
            time.sleep(0.2)
        decode(context, parts)
        events.append("read")

    def repacking(loading: _Loading, share: float) -> None:
        asked.wait()
        pauses(loading, share)
        events.append("repacked")

    monkeypatch.setattr(NativeContext, "decode", reading)
    monkeypatch.setattr(_Loading, "_pauses", repacking)
    with closing(load(planned(path), at_once=True).assistant) as cold:
        cold.reply(TEXT, ReplyOptions(seed=3, max_tokens=2), raw=True)
    assert events[0] == "read"
    assert events.index("repacked") < len(events) - 1, "the second token is of the repacked weights"


def test_one_that_is_closed_before_its_weights_are_repacked_ends(path: Path) -> None:
    cold = load(planned(path), at_once=True).assistant
    options = ReplyOptions(seed=3, max_tokens=1)
    assert len(cold.reply(TEXT, options, raw=True).tokens) == 1
    cold.close()
    load(planned(path), at_once=True).assistant.close()
