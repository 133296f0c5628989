"""What finding calls in an answer costs, beside another tree: python -m lab.find_calls MODEL.gguf OTHER_TREE [PAIRS].

An answer of some 30,000 tokens, prose, code and HTML without a call, goes through the parser of calls and through the rule
that waits for one, as it does where functions are offered: text of each token, and the 40 likeliest tokens masked. Both
trees in turns; prints the medians of the seconds, and of the ratios of neighbours, for three forms of calls.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

_CALL = "{%% for call in message.tool_calls or [] %%}%s{%% endfor %%}"
_PAIRS = "{%% for key, value in call.function.arguments.items() %%}%s{%% endfor %%}"
_FORMS = {
    "json": '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>',
    "xml": "<tool_call>\n<function={{ call.function.name }}>\n"
    + _PAIRS % "<parameter={{ key }}>\n{{ value }}\n</parameter>\n"
    + "</function>\n</tool_call>",
    "lines": "<tool_call>{{ call.function.name }}\n"
    + _PAIRS % "<arg_key>{{ key }}</arg_key>\n<arg_value>{{ value }}</arg_value>\n"
    + "</tool_call>",
}
_TEXT = (
    "The function reads a file and returns what it says. <li><s>10 EUR</s> 8 EUR</li>\n"
    "    def read(path: str) -> list[int]:\n        return [each < 3 for each in lines(path) if each > 1]\n\n"
    "1. First, `List<String>` is no tag; then x<y and y>z.\nget the area\nnow and then\n\n"
) * 260


def source(form: str) -> str:
    """Return a template that writes calls in a form."""
    return (
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{{ message.content }}" + _CALL % f"\n{_FORMS[form]}" + "<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def measured(model: str) -> dict[str, float]:
    """Return seconds by form and by what took them, in the tree that is imported."""
    from localspec.calls import Tool
    from localspec.calls.policy import CallPolicy
    from localspec.chat.call_finder import call_format
    from localspec.chat.call_parser import CallParser
    from localspec.chat.template import ChatTemplate
    from localspec.decoding.constraint import AnswerConstraint
    from localspec.grammar import Grammars
    from localspec.llama import backend
    from localspec.llama.native import native
    from localspec.llama.vocabulary import Vocabulary

    backend.initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    vocabulary = Vocabulary(
        native.llama_model_get_vocab(native.llama_model_load_from_file(model.encode(), params))
    )
    ids = vocabulary.tokenize(_TEXT, add_special=False, parse_special=False)
    pieces = [vocabulary.piece(each).decode(errors="replace") for each in ids]
    others = np.random.default_rng(1).integers(0, vocabulary.n_vocab, (len(ids), 40))
    others[:, 0] = ids
    grammars, seconds = Grammars(vocabulary), {"tokens": float(len(ids))}
    names = ["area", "now", *(f"function_{number}" for number in range(14))]
    schema = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
    tools = [Tool(each, schema) for each in names]
    for form in _FORMS:
        found = call_format(ChatTemplate(source(form), "", "<|im_end|>"))
        assert found is not None, form
        parser, start = CallParser(found, tools, lambda: "1"), time.process_time()
        for piece in pieces:
            parser.feed(piece)
        seconds[f"{form}: text"] = time.process_time() - start
        rule = grammars.of_answers(found, tools, CallPolicy().offer(names, []), {})
        constraint, start = AnswerConstraint(rule, 0), time.process_time()
        for at, row in enumerate(others[:4000]):
            constraint.allows(ids[:at], row)
        seconds[f"{form}: masks of 4000 tokens"] = time.process_time() - start
    return seconds


def run(tree: str, model: str) -> dict[str, float]:
    """Measure in a process of its own, with a tree's code."""
    code = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['measured'](sys.argv[2])))"
    words = [sys.executable, "-c", code, str(Path(__file__).resolve()), str(Path(model).resolve())]
    done = subprocess.run(
        words, cwd=tree, env={"PYTHONPATH": tree, "PATH": ""}, capture_output=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measure in turns, and print."""
    model, other, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 12
    here, runs = str(Path(__file__).resolve().parents[1]), list[tuple[dict[str, float], ...]]()
    for number in range(pairs):
        trees = (here, other) if number % 2 else (other, here)
        done = {tree: run(tree, model) for tree in trees}
        runs.append((done[here], done[other]))
    print(f"{runs[0][0]['tokens']:.0f} tokens, {pairs} pairs; this tree, the other, ratio")
    for name in runs[0][0]:
        if name != "tokens":
            ours, theirs = ([each[side][name] for each in runs] for side in (0, 1))
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            print(
                f"{name:28} {statistics.median(ours):.3f} s  {statistics.median(theirs):.3f} s  {ratio:.3f}"
            )


if __name__ == "__main__":
    main()
