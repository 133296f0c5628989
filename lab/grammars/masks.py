"""What a mask costs: every token's mask along texts of the tests' schemas, over vocabularies of three sizes.

    python -m lab.grammars.masks [--texts 4] [--only smollm2,qwen2,gemma-4]

SmolLM2's vocabulary comes from its weights, the others from llama.cpp's tokenizers without weights. A text is drawn byte by
byte from the schema's grammar and then cut into the model's tokens; for each of these the mask is asked for once, as choosing
a token does. Prints a table, in processor time: seconds to read the vocabulary, milliseconds to compile a grammar, and a mask.
Recursive GBNF is told apart, since it is read character by character.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np

from lab.grammars.walks import walk
from localspec.decoding.constraint import AnswerConstraint
from localspec.grammar import Grammars
from localspec.llama.backend import initialise
from localspec.llama.vocabulary import Vocabulary
from localspec.models.pull import pull
from localspec.options import ReplyOptions
from tests.grammar.answers import Walked, automaton
from tests.grammar.grammars import GRAMMARS
from tests.grammar.schemas import ASKED
from tests.vocabularies import real_vocabularies

_JSON_TEXT = json.dumps({"name": "Maria Gomez", "tags": ["a b", 'c"d', {"x": [1.5e3, None, True]}]})


def _vocabulary(path: Path) -> tuple[int, Vocabulary]:
    """Return a model of which only the vocabulary was read, and that."""
    initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    handle = native.llama_model_load_from_file(os.fsencode(path), params)
    return handle, Vocabulary(native.llama_model_get_vocab(handle))


def _answers(texts: int) -> Iterator[tuple[str, ReplyOptions, str]]:
    """Yield kinds of grammars, each with texts of it."""
    for asked in ASKED:
        options = ReplyOptions(json_schema=asked.schema)
        for seed in range(texts):
            text = walk(Walked(automaton(json_schema=asked.schema)), Random(seed))
            if text is not None:
                yield "JSON schemas", options, text.decode()
    yield "recursive GBNF", ReplyOptions(grammar=GRAMMARS[1]), _JSON_TEXT


def _measure(grammars: Grammars, vocabulary: Vocabulary, answers: list[Any]) -> None:
    times: dict[str, list[float]] = {}
    compiled: list[float] = []
    seen = set[ReplyOptions]()
    for kind, options, text in answers:
        started = time.process_time()
        constraint = AnswerConstraint(grammars(options), 0)
        if options not in seen:
            compiled.append(time.process_time() - started)
            seen.add(options)
        ids = vocabulary.tokenize(text, add_special=False, parse_special=False)
        for end in range(len(ids) + 1):
            started = time.process_time()
            mask = constraint.allows(ids[:end], np.array(ids[end : end + 1], dtype=np.int64))
            times.setdefault(kind, []).append(time.process_time() - started)
            if not mask.all():
                break  # where the text is forced, it has to be cut in the model's own way
    print(f"  compiling: median {1e3 * np.median(compiled):.2f}, most {1e3 * max(compiled):.1f} ms")
    for kind, all_s in times.items():
        parts = [1e3 * float(np.percentile(all_s, share)) for share in (50, 95, 99, 100)]
        shown = " | ".join(f"{part:.3f}" for part in parts)
        print(f"  | {kind} | {vocabulary.n_vocab} | {len(all_s)} | {shown} |")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--only", default="smollm2,qwen2,gemma-4")
    given = parser.parse_args()
    answers = list(_answers(given.texts))
    print("  | grammars | vocabulary | masks | median | 95 % | 99 % | most, ms |")
    for name in given.only.split(","):
        path = pull("smollm2-135m")[0] if name == "smollm2" else real_vocabularies()[name]
        handle, vocabulary = _vocabulary(path)
        grammars = Grammars(vocabulary)
        started = time.process_time()
        grammars(ReplyOptions(regex="a"))
        print(f"{name}: {time.process_time() - started:.2f} s to read the vocabulary")
        _measure(grammars, vocabulary, answers)
        native.llama_model_free(handle)


if __name__ == "__main__":
    main()
