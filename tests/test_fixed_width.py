"""`--exact` where no width but 1 is exact, as on a GPU: passes of one width, and the same text with and without drafts."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

import localspec.launch.load as loading
from localspec.calibration import calibrated
from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.launch.load import load
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import FIXED_WIDTH, SafeWidths, safe_widths
from localspec.llama.sequences import LlamaSequences
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plugins.bench.prompts import bundled
from tests.llama import tiny_models
from tests.support.mixtures import mixture
from tests.support.speaking import opened

pytestmark = [pytest.mark.weights, pytest.mark.slow]
PROMPT = "Repeat five times: the cat sat on the mat and looked at the dog, and the dog at the cat."
# Beyond 256 tokens, kernels of a CPU without flash attention round passes of other widths otherwise, as those of a GPU do.
OPTIONS = LoadOptions(n_ctx=512, threads=1, gpu_layers=0)


@pytest.fixture
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU be taken for a GPU, on which only passes of one width are exact."""
    monkeypatch.setattr(
        LlamaModel, "on_gpu", property(lambda _: True, lambda *_: None), raising=False
    )
    widths = SafeWidths((1,), {}, fixed=FIXED_WIDTH, most=FIXED_WIDTH)
    monkeypatch.setattr(loading, "calibrated_widths", lambda *_: widths)


def answers(path: Path, draft: str) -> tuple[list[str], int]:
    """Return the texts of two replies at two temperatures, and how many tokens were drafted."""
    texts, drafted = [], 0
    with closing(opened(path, draft, exact=True, offline=True, options=OPTIONS)) as assistant:
        assert isinstance(assistant.models.targets, LlamaSequences)
        assert assistant.models.targets.native.pass_width == FIXED_WIDTH
        for temperature in (0.0, 0.8):
            options = ReplyOptions(SamplingParams(temperature=temperature), max_tokens=60, seed=5)
            reply = assistant.reply(PROMPT, options)
            texts.append(reply.text)
            drafted += reply.acceptance.drafted
    return texts, drafted


@pytest.mark.usefixtures("as_on_gpu")
def test_texts_are_the_same_in_passes_of_one_width(smollm2_path: Path) -> None:
    plain, none = answers(smollm2_path, "off")
    assert none == 0
    for draft in ("model:3", "lookup"):
        drafted, count = answers(smollm2_path, draft)
        assert drafted == plain
        assert count > 10


@pytest.mark.usefixtures("as_on_gpu")
def test_several_sequences_keep_passes_of_single_tokens(smollm2_path: Path) -> None:
    for parallel, (width, rows) in ((2, (0, 1)), (1, (FIXED_WIDTH, FIXED_WIDTH))):
        kind: dict[str, Any] = {"exact": True, "offline": True, "options": OPTIONS}
        with closing(opened(smollm2_path, "lookup", parallel=parallel, **kind)) as assistant:
            targets = assistant.models.targets
            assert isinstance(targets, LlamaSequences)
            assert (targets.native.pass_width, targets.most_rows) == (width, rows)


@pytest.mark.usefixtures("as_on_gpu")
def test_heads_of_the_file_give_way_to_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    path = tiny_models.write_windowed(tmp_path / "target.gguf", 0.008, mtp=2)
    plan = make_plan(LaunchOptions(target=str(path), exact=True, fit=False, load=OPTIONS))
    assert plan.heads is not None
    runtime = load(plan)
    assert runtime.assistant.models.draft_models is None
    assert runtime.drafting.longest == FIXED_WIDTH - 1
    runtime.assistant.close()


def test_a_fixed_width_is_looked_for_where_no_other_is_exact(six_layers_path: Path) -> None:
    options = replace(OPTIONS, flash_attention=False)
    model = LlamaModel(six_layers_path, options)
    try:
        model.on_gpu = True
        found = safe_widths(model, options, depths=(300, 511), most_price=inf)
        assert 2 not in found.widths
        assert (found.fixed, found.most) == (FIXED_WIDTH, FIXED_WIDTH)
        dear = safe_widths(model, options, depths=(300, 511), most_price=1.0)
        assert (dear.fixed, dear.longest) == (0, 1)
        assert dear.price > 1
    finally:
        model.close()


def requests(count: int) -> Iterator[Request]:
    """Yield requests, the same each time, of which every other one is answered greedily."""
    prompts = bundled()
    for number in range(count):
        text = prompts[number % len(prompts)].prompt[-150:]
        sampling = SamplingParams(temperature=0.8 * (number % 2))
        options = ReplyOptions(sampling, max_tokens=200, seed=number)
        yield Request(number, raw=f"{number}. {text}", options=options, deterministic=True)


def all_answers(assistant: Assistant, count: int) -> dict[int, tuple[tuple[int, ...], int]]:
    """Return the tokens of all answers, as many at a time as there are sequences, and how many were drafted."""
    found: dict[int, tuple[tuple[int, ...], int]] = {}
    wanted, running = list(requests(count)), 0
    while wanted or running:
        while wanted and running < assistant.count:
            assistant.submit(wanted.pop(0))
            running += 1
        assistant.step()
        for key, event in assistant.take():
            if isinstance(event, Finished):
                found[key] = event.reply.tokens, event.reply.acceptance.drafted
                running -= 1
    return found


MIXTURES = (("qwen3moe", 8, "Q8_0"), ("gpt-oss", 8, "Q8_0"))
"""Made models whose logits say that drafts are safe, and whose texts say otherwise."""


@pytest.mark.parametrize(("architecture", "layers", "kind"), MIXTURES)
@pytest.mark.parametrize("most_price", [inf, 0.0], ids=["padded", "dear"])
def test_drafts_change_no_text_of_a_mixture_of_experts(
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    layers: int,
    kind: str,
    most_price: float,
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(calibrated, "safe_widths", partial(safe_widths, most_price=most_price))
    folder = tmp_path_factory.getbasetemp() / "mixtures"
    path, texts = mixture(folder, architecture, layers, kind, seed=2), dict[str, Any]()
    for draft, parallel in (("off", 1), ("model:3", 1), ("lookup:15", 1), ("auto", 4)):
        launch = LaunchOptions(
            target=str(path),
            draft_model=str(path) if draft in {"model:3", "auto"} else None,
            draft=draft,
            exact=True,
            fit=False,
            load=OPTIONS,
        )
        runtime = load(make_plan(launch, parallel=parallel))
        with closing(runtime.assistant) as assistant:
            (line,) = (each for each in assistant.notes if each.startswith("exact: "))
            # Where nothing is drafted, a few show it.
            found = all_answers(assistant, 12 if most_price else 2)
            texts[draft] = {key: tokens for key, (tokens, _) in found.items()}
            drafted = sum(count for _, count in found.values())
            if draft in {"model:3", "lookup:15"}:
                assert (drafted > 0) is (most_price > 0), line
                assert ("in passes of 2 tokens or more" in line) is (most_price > 0)
                assert ("nothing is drafted" in line) is (most_price == 0)
            if not most_price:
                assert assistant.models.draft_models is None
        assert texts[draft] == texts["off"], draft
    assert sum(map(len, texts["off"].values())) > (600 if most_price else 20)
