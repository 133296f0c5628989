"""What it takes to render a prompt of 30,000 tokens and to find how a template writes calls: this tree beside another one, in pairs.

    python -m lab.benchmarks.rendering OTHER_TREE [--pairs 12]

Each measurement is a process of its own, with the other tree's code or this one's; the first rendering, in which a template
is asked what it takes, counts as a part of finding. Counted is processor time, the renderer's as well (Linux). Prints medians
of the ratios, this tree ÷ the other, and their range.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parents[2]
_TEMPLATES = ("Qwen-Qwen2.5-7B-Instruct", "Qwen3.5-4B", "Mistral-Small-3.2-24B-Instruct-2506")
_ROUNDS, _WORDS, _TIMES = 60, 180, 9


def conversation() -> list[Any]:
    """Return a question, and sixty rounds of words, a call and its result: some 30,000 tokens."""
    from localspec.messages import Message, TextPart, ToolCall, ToolResult

    said = [Message.system("Be brief."), Message.user("Read all of it.")]
    words = "some words of a file that is read in pieces and says little "
    for at in range(_ROUNDS):
        number = f"callNum{at:02}"
        call = ToolCall(number, "read_file", json.dumps({"path": f"src/{at}.py", "line": at}))
        said.append(Message("assistant", (TextPart(f"Now {at}."), call)))
        text = (words * (_WORDS // 6))[: _WORDS * 10]
        said.append(Message("tool", (ToolResult(number, text),)))
    return said


def measure(folder: str) -> dict[str, float]:
    """Return seconds by what took them, medians of several times; for the tree that is imported."""
    from localspec.calls import Tool
    from localspec.chat import jinja
    from localspec.chat.call_finder import call_format
    from localspec.chat.template import ChatTemplate

    def used_s() -> float:
        child: Any = jinja._renderer._child  # noqa: SLF001
        return time.process_time() + (
            int(Path(f"/proc/{child.pid}/schedstat").read_text().split()[0]) / 1e9
        )

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [Tool("read_file", schema, "Reads a file.")]
    said, found = conversation(), dict[str, float]()
    for name in _TEMPLATES:
        source = Path(folder, f"{name}.jinja").read_text()
        took = {"find": list[float](), "render": list[float]()}
        for _ in range(_TIMES):
            chat = ChatTemplate(source, "<s>", "</s>")
            start = used_s()
            call_format(chat)
            chat.render(said[:4], tools=tools)
            took["find"].append(used_s() - start)
            start = used_s()
            text = chat.render(said, tools=tools)
            took["render"].append(used_s() - start)
        assert text.count("some words") > _ROUNDS
        found |= {f"{what} {name}": statistics.median(each) for what, each in took.items()}
    return found


def main() -> None:
    """Measure both trees in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", help="another tree; with --one the templates")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.tree)))
        return
    from tests.vocabularies import real_templates

    folder = next(iter(real_templates().values())).parent

    def took(tree: Path) -> dict[str, float]:
        env = os.environ | {"PYTHONPATH": str(tree)}
        command = [sys.executable, "-P", __file__, "--one", str(folder)]
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout))

    ratios: dict[str, list[float]] = {}
    for at in range(given.pairs):
        trees = [_HERE, Path(given.tree).resolve()]
        pair = {tree: took(tree) for tree in (trees if at % 2 else trees[::-1])}
        for name, seconds in pair[trees[0]].items():
            ratios.setdefault(name, []).append(seconds / pair[trees[1]][name])
    for name, each in ratios.items():
        print(f"{name:45} {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})")
    for what in ("find", "render"):
        every = [x for name, each in ratios.items() if name.startswith(what) for x in each]
        print(f"{what:45} {statistics.median(every):.3f}")


if __name__ == "__main__":
    main()
