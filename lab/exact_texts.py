"""Exact texts: in how many answers of made models drafting changes a token under `--exact`, and what drafting takes.

    python -m lab.exact_texts FOLDER [--models qwen3moe-2-Q8_0,llama-16-BF16,...] [--answers 200] [--max-tokens 100]
        [--modes model:3,lookup:15,auto] [--most-price inf] [--kv-type q8_0] [--threads N] [--kernels exact|default]

Models are mixtures of experts and dense ones with random weights (`lab/synthetic/mixtures.py`), each its own draft model. Every
answer is given without drafts, in every mode, and once more with `auto` four at a time, half of them greedily and half at 0.8.
FOLDER gets the models, what is measured of them, and `texts.jsonl`: a line a model. A second call leaves out the models that have
one. Seconds only say something on a machine that does nothing else. `--most-price inf` drafts in padded passes whatever they cost.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from lab.synthetic.mixtures import mixture
from localspec.bench.prompts import bundled
from localspec.calibration import calibrated
from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.safe_widths import safe_widths
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

MODELS = (
    *(f"{arch}-{layers}-{kind}" for layers in (2, 16) for arch in ("qwen3moe", "gpt-oss", "gemma4") for kind in ("Q4_K_M", "Q8_0", "MXFP4")),
    *(f"llama-{layers}-{kind}" for layers in (2, 16) for kind in ("F16", "BF16", "IQ4_XS", "IQ3_S", "IQ4_NL")),
)  # fmt: skip
_CHARACTERS = 150


def requests(count: int, max_tokens: int) -> Iterator[Request]:
    """Yield as many requests, the same each time, of which every other one is answered greedily."""
    prompts = bundled()
    for number in range(count):
        text = prompts[number % len(prompts)].prompt[-_CHARACTERS:]
        sampling = SamplingParams(temperature=0.8 * (number % 2))
        options = ReplyOptions(sampling, max_tokens=max_tokens, seed=number)
        yield Request(number, raw=f"{number}. {text}", options=options, deterministic=True)


def answers(
    assistant: Assistant, wanted: Iterator[Request]
) -> dict[int, tuple[tuple[int, ...], int]]:
    """Return the tokens of all answers, as many at a time as there are sequences, and how many were drafted."""
    found: dict[int, tuple[tuple[int, ...], int]] = {}
    running, more = 0, True
    while more or running:
        while more and running < assistant.count:
            request = next(wanted, None)
            more = request is not None
            if request is not None:
                assistant.submit(request)
                running += 1
        assistant.step()
        for key, event in assistant.take():
            if isinstance(event, Finished):
                found[key] = event.reply.tokens, event.reply.acceptance.drafted
                running -= 1
    return found


def compared(path: Path, flags: argparse.Namespace) -> dict[str, Any]:
    """Answer in every mode, and return how many texts differ from those without drafts."""
    line: dict[str, Any] = {"model": path.stem, "answers": flags.answers, "kernels": flags.kernels}
    plain: dict[int, tuple[tuple[int, ...], int]] = {}
    options = LoadOptions(n_ctx=512, threads=flags.threads, gpu_layers=0, kv_type=flags.kv_type)
    modes = [("off", 1), *((mode, 1) for mode in flags.modes.split(",")), ("auto", 4)]
    for draft, parallel in modes:
        launch = LaunchOptions(
            target=str(path),
            draft_model=None if draft in {"off", "lookup:15"} else str(path),
            draft=draft,
            exact=flags.kernels == "exact",
            fit=False,
            load=options,
        )
        runtime = load(make_plan(launch, parallel=parallel), parallel=parallel)
        with closing(runtime.assistant):
            start = time.perf_counter()
            found = answers(runtime.assistant, requests(flags.answers, flags.max_tokens))
            took_s = time.perf_counter() - start
        plain = plain or found
        line[draft if parallel == 1 else f"{draft} x{parallel}"] = {
            "differing": sum(found[key][0] != plain[key][0] for key in plain),
            "tokens": sum(len(tokens) for tokens, _ in found.values()),
            "drafted": sum(drafted for _, drafted in found.values()),
            "seconds": round(took_s, 1),
            "notes": [each for each in runtime.assistant.notes if each.startswith("exact")],
        }
    return line


def main() -> None:
    """Compare the models that have no line yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--modes", default="model:3,lookup:15,auto")
    parser.add_argument("--most-price", type=float)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kernels", default="exact")
    flags = parser.parse_args()
    os.environ["LOCALSPEC_DATA_DIR"] = str(flags.folder / "data")
    if flags.most_price is not None:
        calibrated.safe_widths = partial(safe_widths, most_price=flags.most_price)  # type: ignore[attr-defined]
    out = flags.folder / "texts.jsonl"
    done = (
        {json.loads(line)["model"] for line in out.read_text().splitlines()}
        if out.exists()
        else set()
    )
    for name in flags.models.split(","):
        architecture, layers, kind = name.rsplit("-", 2)
        path = mixture(flags.folder / "models", architecture, int(layers), kind, flags.seed)
        if path.stem in done:
            continue
        line = json.dumps(compared(path, flags))
        with out.open("a") as file:
            print(line, file=file)
        print(line, flush=True)


if __name__ == "__main__":
    main()
