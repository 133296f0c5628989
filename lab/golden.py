"""Golden record: what seeds give through the public commands, before a change and after it.

    python lab/golden.py record OUT.json [--program "PYTHON -m localspec"] [--pair NAME --count N]
    python lab/golden.py compare BEFORE.json AFTER.json

A record holds nothing that depends on the clock: texts, endings, seeds, counts of tokens, and the
rounds of drafts of a fixed length. Without `--exact`, texts may differ between machines and builds
of llama.cpp; the record says which ones it was made with. Knows localspec by its commands alone.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SMALL = "smollm2-135m"
PROGRAM = f"{sys.executable} -m localspec"
# The same on every run: no GPU, no network, no settings or statistics of the user, no sampling that a model recommends.
PLAIN = (
    *("--gpu-layers", "0", "--offline", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05"),
    *("--repeat-penalty", "1"),
)
ENVIRONMENT = {
    "LOCALSPEC_CONFIG_DIR": "/dev/null/none",
    "LOCALSPEC_TELEMETRY": "off",
    "LOCALSPEC_TEMPERATURE": "0.8",
    "LOCALSPEC_STOP_LOOPS": "off",
    "GOMP_SPINCOUNT": "1000",  # threads that spin wait for each other on a busy machine
}
PLAN = ("rounds", "drafted", "accepted")

Line = dict[str, Any]
Flags = tuple[str, ...]

# Modes whose rounds do not depend on the clock.
MODES: dict[str, Flags] = {
    "off": ("--draft", "off"),
    "lookup:5": ("--draft", "lookup", "--draft-length", "5"),
    "model:3": ("--draft", "model", "--draft-length", "3"),
}

REQUESTS: dict[str, Any] = json.loads((HERE / "golden_requests.json").read_text())
"""What a line of `batch` may say of how it is answered, each tried alone; and calls of `run --json`: flags, and what stdin
brings. Without `--draft`, nothing is drafted. Schemas and the grammar stand there under a name."""
NAMED = {**REQUESTS["schemas"], "GRAMMAR": REQUESTS["grammar"]}
OPTIONED: dict[str, Line] = {
    name: {
        key: NAMED.get(value, value) if isinstance(value, str) else value
        for key, value in line.items()
    }
    for name, line in REQUESTS["batch"].items()
}


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of `batch`: a mass of lines for one load of the weights.

    Args:
        name: of the part of the record.
        lines: what is asked, by the id under which it is recorded.
        flags: of the command.
        plan: whether rounds are recorded, too: they do not depend on the clock.
    """

    name: str
    lines: dict[str, Line]
    flags: Flags
    plan: bool = True


def prompts(count: int | None = None) -> dict[str, Line]:
    """Return prompts at two temperatures, by id; of fewer than there are, some of every kind."""
    rows = [json.loads(row) for row in (HERE / "golden_prompts.jsonl").read_text().splitlines()]
    if count is not None:
        rows = [rows[index * len(rows) // count] for index in range(count)]
    return {
        f"{row['id']} at {temperature}": {"prompt": row["prompt"], "temperature": temperature}
        for row in rows
        for temperature in (0, 0.8)
    }


def batches(models: Flags, count: int | None) -> Iterator[Batch]:
    """Yield the calls of `batch`; a count asks for that many prompts, and for them alone.

    Args:
        models: the flags that name a target and a draft model.
        count: of prompts; None takes all, and everything else that is recorded.
    """
    for mode, flags in MODES.items():
        asked = count if mode == "off" or count is not None else 20
        yield Batch(mode, prompts(asked), (*models, *flags))
    few = prompts(6)
    for mode, flags in MODES.items():
        yield Batch(f"exact {mode}", few, (*models, *flags, "--exact"))
    yield Batch("exact auto", few, (*models, "--exact"), plan=False)
    if count is not None:
        return
    for mode in ("off", "model:3"):
        yield Batch(f"options {mode}", OPTIONED, (*models, *MODES[mode]))
    for mode, flags in MODES.items():
        yield Batch(f"raw {mode}", few, (*models, *flags, "--raw"))
    for mode, flags in MODES.items():
        told = (*models, *flags, "--parallel", "4")
        # Which lines share a pass depends on when they end, never on the clock: the source is a file.
        yield Batch(f"parallel {mode}", few, told)
        yield Batch(f"parallel exact {mode}", few, (*told, "--exact"))


class Recorder:
    """Calls a program and keeps what it gives.

    Args:
        program: the words of its command.
        threads: for llama.cpp.
        folder: where questions and answers are written for it.
    """

    def __init__(self, program: Sequence[str], threads: int, folder: Path) -> None:
        self._program = list(program)
        self._plain = ("--threads", str(threads), *PLAIN)
        self._folder = folder
        self.lines: dict[str, Line] = {}

    def record_batch(self, batch: Batch, max_tokens: int) -> None:
        """Ask a batch's lines, and keep one record of each.

        Raises:
            SystemExit: the program failed, or left a line out.
        """
        source, output = self._folder / "questions.jsonl", self._folder / "answers.jsonl"
        asked = [
            {**line} if "custom_id" in line else {"id": name, **line}
            for name, line in batch.lines.items()
        ]
        source.write_text("".join(json.dumps(line) + "\n" for line in asked))
        output.unlink(missing_ok=True)
        limits = ("--max-tokens", str(max_tokens), "--seed", "7")
        words = ("batch", str(source), "-o", str(output), *limits, "--quiet")
        self._call(batch.name, (*words, *self._plain, *batch.flags), "", allowed=(0, 5))
        answers = [json.loads(each) for each in output.read_text().splitlines()]
        if [each["id"] for each in answers] != list(batch.lines):
            # A line without a prompt may lose its id; its number is what remains.
            names = list(batch.lines)
            if [each["line"] for each in answers] != list(range(1, len(names) + 1)):
                sys.exit(f"{batch.name}: the answers are not one for each line")
        for name, answer in zip(batch.lines, answers, strict=True):
            self.lines[f"{batch.name} | {name}"] = _kept(answer, plan=batch.plan)
        print(f"{batch.name}: {len(answers)} lines", file=sys.stderr)

    def record_runs(self) -> None:
        """Ask with `run --json`, one process each."""
        grammar = self._folder / "answer.gbnf"
        grammar.write_text(REQUESTS["grammar"])
        words_of = {"PERSON": json.dumps(NAMED["PERSON"]), "GRAMMAR": str(grammar)}
        for name, call in REQUESTS["run"].items():
            flags = [words_of.get(each, each) for each in call["flags"]]
            exact_auto = "--exact" in flags and "--draft" not in flags
            draft = () if exact_auto or "--draft" in flags else MODES["off"]
            limit = () if "--max-tokens" in flags else ("--max-tokens", "32")
            words = ("run", "--json", "--quiet", "--pair", SMALL, *self._plain, *draft, *limit)
            out = self._call(name, (*words, *flags), call["stdin"], allowed=(0,))
            kept = _kept(json.loads(out), plan=not exact_auto)
            if not any(each.startswith("--seed") for each in flags):
                del kept["seed"]  # drawn anew for every run
            self.lines[f"run | {name}"] = kept
        print(f"run: {len(REQUESTS['run'])} calls", file=sys.stderr)

    def _call(self, name: str, words: Sequence[str], stdin: str, allowed: Sequence[int]) -> str:
        done = subprocess.run(
            [*self._program, *words],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, **ENVIRONMENT},
            check=False,
        )
        if done.returncode not in allowed:
            sys.exit(f"{name} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout


def _kept(answer: Line, *, plan: bool) -> Line:
    """Return what a record keeps of an answer, flat."""
    if "error" in answer:
        return {"error": answer["error"]["type"]}
    kept = {
        "text": answer["text"],
        "thinking": answer.get("thinking", ""),
        "stop_reason": answer["stop_reason"],
        "seed": answer["seed"],
        "prompt_tokens": answer["usage"]["prompt_tokens"],
        "completion_tokens": answer["usage"]["completion_tokens"],
    }
    if plan:
        kept |= {name: answer["speculation"][name] for name in PLAN}
    return kept


_ORIGIN = """
import json, pathlib, importlib.metadata, localspec, llama_cpp
print(json.dumps([str(pathlib.Path(localspec.__file__).parent.parent),
    importlib.metadata.version("llama-cpp-python"),
    llama_cpp.llama_print_system_info().decode()]))
"""


def origin(program: Sequence[str], threads: int) -> dict[str, Any]:
    """Return what a record was made with: machine, libraries, commit."""
    environment = {**os.environ, **ENVIRONMENT}
    out = subprocess.run(
        [program[0], "-c", _ORIGIN], capture_output=True, text=True, env=environment, check=True
    )
    root, version, features = json.loads(out.stdout)
    commit = subprocess.run(
        ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    cpu = next((row.partition(":")[2].strip() for row in names if "model name" in row), "unknown")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "features": features.strip(),
        "llama_cpp_python": version,
        "python": sys.version.split()[0],
        "threads": threads,
        "commit": commit.stdout.strip() or "unknown",
    }


def record(options: argparse.Namespace) -> int:
    """Write a record, part by part: what was asked is kept, whatever ends it."""
    program = shlex.split(options.program)
    made = origin(program, options.threads)

    def save() -> None:
        text = json.dumps({"origin": made, "lines": recorder.lines}, indent=1, ensure_ascii=False)
        options.out.write_text(text + "\n")

    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(program, options.threads, Path(folder))
        if options.pair is None:
            models = ("--target", SMALL, "--draft-model", SMALL)
            parts = list(batches(models, None))
            recorder.record_runs()
            save()
        else:
            parts = list(batches(("--pair", options.pair), options.count))
        for batch in parts:
            recorder.record_batch(batch, options.max_tokens)
            save()
    print(f"{len(recorder.lines)} lines recorded of {made['commit']}", file=sys.stderr)
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print every difference between two records; return 1 where there is one."""
    before, after = (json.loads(each.read_text()) for each in (options.before, options.after))
    for name, value in before["origin"].items():
        if name != "commit" and after["origin"].get(name) != value:
            print(f"note: {name} was {value!r}, is {after['origin'].get(name)!r}", file=sys.stderr)
    count = 0
    for line in dict.fromkeys((*before["lines"], *after["lines"])):
        old, new = before["lines"].get(line, {}), after["lines"].get(line, {})
        for field in dict.fromkeys((*old, *new)):
            if old.get(field) != new.get(field) or (field in old) != (field in new):
                count += 1
                print(f"{line}\n  {field}\n  - {old.get(field)!r}\n  + {new.get(field)!r}")
    print(f"{count} differences in {len(before['lines'])} lines", file=sys.stderr)
    return 1 if count else 0


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record", help="ask, and write what came")
    recording.set_defaults(verb=record)
    recording.add_argument("out", type=Path)
    recording.add_argument("--program", default=PROGRAM, help="the command, its Python first")
    recording.add_argument("--pair", help="record this pair instead of SmolLM2")
    recording.add_argument("--count", type=int, default=12, help="prompts for --pair")
    recording.add_argument("--max-tokens", type=int, default=48)
    recording.add_argument("--threads", type=int, default=2)
    comparing = verbs.add_parser("compare", help="print what differs; exit code 1 if anything does")
    comparing.set_defaults(verb=compare)
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    code: int = options.verb(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
