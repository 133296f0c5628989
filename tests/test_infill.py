"""A gap in a program, filled in by a model that was trained for it."""

from pathlib import Path

import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, Reply, RequestFailed
from localspec.chat.request import Request
from localspec.errors import UsageError
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.messages import Infill
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=16)


def loaded(path: Path) -> Assistant:
    options = LoadOptions(n_ctx=512, gpu_layers=0)
    return load(make_plan(LaunchOptions(target=str(path), draft="off", load=options))).assistant


def filled(assistant: Assistant, gap: Infill) -> Reply:
    assistant.submit(Request(1, (), GREEDY, infill=gap))
    while True:
        assistant.step()
        for _, event in assistant.take():
            if isinstance(event, RequestFailed):
                raise event.error
            if isinstance(event, Finished):
                return event.reply


@pytest.mark.pair
def test_a_code_model_fills_in_what_is_missing(qwen_target_path: Path) -> None:
    assistant = loaded(qwen_target_path)
    area = ("shapes.py", "def circle_area(radius):\n    return 3.14159 * radius ** 2\n")
    gap = Infill(
        "def square_area(side):\n    ", "\n    return area\n\n\nprint(square_area(3))\n", (area,)
    )
    reply = filled(assistant, gap)
    assistant.close()
    assert reply.text.strip() in {"area = side ** 2", "area = side * side"}
    assert reply.stop_reason.value == "eog"


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_without_tokens_for_it_says_so(smollm2_path: Path) -> None:
    assistant = loaded(smollm2_path)
    with pytest.raises(UsageError, match="cannot fill in the middle"):
        filled(assistant, Infill("a", "b"))
    assistant.close()
