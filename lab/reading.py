"""How long a first token takes: of long prompts by both copies of the weights and by llama-completion, and of a cold `run`.

    python -m lab.reading long MODEL... --completion PATH [--other TREE] [--tokens 2600,8000] [--rounds 5]
    python -m lab.reading cold MODEL... --completion PATH [--other TREE] [--rounds 12]

A MODEL is a file. Each round starts one process of each kind, in turns: this tree (`ours`), another one (`other`), `completion`;
with `long` also `plain` and `repacked`, which read in a context of this process. Where something is still to be measured for a
file, a first `run` does that. `cold` asks for one token and for 64. Medians, with the least and the most; ÷ is by pairs of a round.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions

HERE = Path(__file__).parents[1]
FLAGS = ("--draft", "off", "--temperature", "0", "--no-prompt-cache", "--no-keep", "-q")
SECONDS = defaultdict[str, list[float]](list)


def prompt(tokens: int) -> str:
    """Return code of about so many tokens."""
    files = sorted((HERE / "localspec" / "decoding").glob("*.py"))
    return "".join(each.read_text() for each in [*files] * 4)[: 4 * tokens]


def first_token_s(command: list[str], tree: Path, stop: bool) -> float:
    """Return the seconds until a command prints something, or with `stop` False until it has ended."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        first = os.read(child.stdout.fileno(), 1)
        took_s = time.perf_counter() - start
        child.stdout.read()
    assert first, f"{command[0]} printed nothing"
    return took_s if stop else time.perf_counter() - start


def ours(tree: Path, model: str, file: Path, most: int, threads: int) -> list[str]:
    """Return the command of a tree for one question."""
    python = str(tree / ".venv" / "bin" / "python") if tree != HERE else sys.executable
    words = [
        "--threads",
        str(threads),
        "-m",
        model,
        "-f",
        str(file),
        "--max-tokens",
        str(most),
        "What is this?",
    ]
    return [python, "-m", "localspec", "run", *FLAGS, *words]


def theirs(program: str, model: str, file: Path, most: int, threads: int) -> list[str]:
    """Return the command of llama-completion for the same."""
    flags = ["-no-cnv", "--no-display-prompt", "--temp", "0", "-t", str(threads), "-c", "16384"]
    return [program, "-m", model, "-f", str(file), "-n", str(most), *flags]


def read_s(model: str, text: str, threads: int, *, plain: bool) -> float:
    """Return the seconds in which a copy reads a text, without those of loading it."""
    options = LoadOptions(n_ctx=16384, threads=threads)
    loaded = LlamaModel(Path(model), options, plain=plain)
    try:
        tokens = loaded.vocabulary.tokenize(text, add_special=True, parse_special=False)
        context = LlamaContext(loaded)
        start = time.perf_counter()
        context.logits(tokens, rows=1)
        return time.perf_counter() - start
    finally:
        loaded.close()


def rounds(asked: argparse.Namespace, model: str, file: Path, text: str) -> Iterator[str]:
    """Time every kind of a model in turns; yield the kinds."""
    trees = {"ours": HERE} | ({"other": asked.other} if asked.other else {})
    for most in (1,) if asked.what == "long" else (1, 64):
        for name, tree in trees.items():
            kind = f"{name}, {most}"
            SECONDS[kind].append(
                first_token_s(ours(tree, model, file, most, asked.threads), tree, most == 1)
            )
            yield kind
        kind = f"completion, {most}"
        command = theirs(asked.completion, model, file, most, asked.threads)
        SECONDS[kind].append(first_token_s(command, HERE, most == 1))
        yield kind
    for plain in (True, False) if asked.what == "long" else ():
        kind = "plain" if plain else "repacked"
        SECONDS[kind].append(read_s(model, text, asked.threads, plain=plain))
        yield kind


def report(model: str, length: int) -> None:
    """Print what a model's kinds took, and by how much ours differs."""
    print(f"{Path(model).name}, {length} tokens or so")
    for kind, seconds in SECONDS.items():
        mine = SECONDS["ours, 64" if kind.endswith("64") else "ours, 1"]
        ratio = median(own / each for own, each in zip(mine, seconds, strict=True))
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"  {kind:16} {median(seconds):6.2f} s ({spread}), ours ÷ it {ratio:.2f}", flush=True)
    SECONDS.clear()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("long", "cold"))
    parser.add_argument("models", nargs="+")
    parser.add_argument("--completion", required=True)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--tokens", default="2600,8000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    lengths = map(int, asked.tokens.split(",")) if asked.what == "long" else [20]
    for model, length in [(model, length) for length in lengths for model in asked.models]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            text = prompt(length)
            file.write(text)
            file.flush()
            subprocess.run(
                ours(HERE, model, Path(file.name), 1, asked.threads),
                check=True,
                capture_output=True,
            )
            for _ in range(asked.rounds):
                for kind in rounds(asked, model, Path(file.name), text):
                    print(f"  {kind} {SECONDS[kind][-1]:.2f}", file=sys.stderr, flush=True)
        report(model, length)


if __name__ == "__main__":
    main()
