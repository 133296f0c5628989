"""llama-server's own tests against llama-server and `localspec serve`: passed by both, by one, by neither.

    python -m lab.llama_server_suite --llama-server PATH MODEL.gguf

The tests come from the source package of llama-cpp-python, which pip fetches, and stay in a folder of their own
(`--work`); only the model and how a server is started are adapted, see `harness.py`. A test that one fails is run once more
with a server of its own. The table goes to stdout, a row for each reason that `localspec serve` fails for, with its tests.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.llama_server_suite.reasons import reason_of

_VERSION = "0.3.36"
_NEEDS = (
    "pytest",
    "requests",
    "wget",
    "openai",
    "aiohttp",
    "numpy",
    "filelock",
    "prometheus-client",
)
_FILES = (
    *("basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion"),
    *("ctx_shift", "embedding", "ignore_eos", "infill", "security", "stream", "tokenize"),
    *("tool_call", "kv_keep_only_active"),
)
"""Without those of what only llama-server has: routers, sleeping, adapters, saved slots, its own tools, a proxy."""

_KINDS = {
    (True, True): "passed by both",
    (True, False): "by localspec alone",
    (False, True): "by llama-server alone",
    (False, False): "by neither",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test, and how it failed."""

    passed: bool
    skipped: bool
    words: str
    place: str


def main() -> int:
    """Run both, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m lab.llama_server_suite", description=__doc__)
    parser.add_argument("model", type=Path, help="a small GGUF file; figures are of SmolLM2-135M")
    parser.add_argument("--llama-server", type=Path, help="its program; without it, ours alone")
    parser.add_argument("--work", type=Path, default=Path("llama-server-suite"))
    parser.add_argument("--source", type=Path, help="llama.cpp's source, where it is unpacked")
    parser.add_argument("--port", type=int, default=18330)
    parser.add_argument("-k", default="", help="which tests, as pytest has it")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    source = asked.source or fetched(asked.work)
    python = prepared(asked.work)
    servers = ["localspec", *(["llama-server"] if asked.llama_server else [])]
    outcomes = {name: run(name, source, python, asked) for name in servers}
    print(table(outcomes["localspec"], outcomes.get("llama-server", {})))
    return 0


def fetched(work: Path) -> Path:
    """Return llama.cpp's source, from the package that pip fetches."""
    if not any(work.glob("llama_cpp_python-*.tar.gz")):
        package = f"llama-cpp-python=={_VERSION}"
        line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*line, "-d", str(work), package], check=True)
    (archive,) = work.glob("llama_cpp_python-*.tar.gz")
    folder = work / archive.name.removesuffix(".tar.gz")
    if not folder.exists():
        with tarfile.open(archive) as file:
            file.extractall(work, filter="data")
    return folder / "vendor/llama.cpp"


def prepared(work: Path) -> Path:
    """Return a Python that has what the tests import."""
    python = work / "venv/bin/python"
    if not python.exists():
        venv.create(work / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *_NEEDS], check=True)
    return python


def run(name: str, source: Path, python: Path, asked: argparse.Namespace) -> dict[str, Outcome]:
    """Return what became of each test with a server; what failed was run once more."""
    results = (asked.work / f"{name}.jsonl").resolve()
    results.unlink(missing_ok=True)
    tests = source / "tools/server/tests"
    files = [f"unit/test_{each}.py" for each in _FILES]
    which = ["-k", asked.k] if asked.k else []
    _pytest(name, tests, python, results, asked, [*files, *which])
    again = [each for each, how in read(results).items() if not how.passed and not how.skipped]
    if again:
        _pytest(name, tests, python, results, asked, again, fresh=True)
    return read(results)


def _pytest(
    name: str,
    tests: Path,
    python: Path,
    results: Path,
    asked: argparse.Namespace,
    what: Sequence[str],
    *,
    fresh: bool = False,
) -> None:
    here = Path(__file__).parent
    data = (asked.work / "data").resolve()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tests), str(here))),
        "PORT": str(asked.port),
        "SUITE_SERVER": name,
        "SUITE_MODEL": str(asked.model.absolute()),
        "SUITE_RESULTS": str(results),
        "SUITE_PYTHON": sys.executable,
        "SUITE_FRESH": "1" if fresh else "",
        "LLAMA_SERVER_BIN_PATH": str(asked.llama_server and asked.llama_server.resolve()),
        "LOCALSPEC_DATA_DIR": str(data),
        "LOCALSPEC_CONFIG_DIR": str(data),
    }
    line = [str(python.absolute()), "-m", "pytest", "-p", "harness", "-p", "no:cacheprovider", "-q"]
    subprocess.run(
        [*line, "--no-header", "--tb=short", "-m", "not slow", *what],
        cwd=tests,
        env=environment,
        stdout=(asked.work / f"{name}.log").open("a"),
        stderr=subprocess.STDOUT,
        check=False,
    )


def read(results: Path) -> dict[str, Outcome]:
    """Return what is written there; of a test that was run twice the last."""
    rows = map(json.loads, results.read_text().splitlines() if results.exists() else ())
    return {
        each["id"]: Outcome(
            each["outcome"] == "passed", each["outcome"] == "skipped", each["words"], each["place"]
        )
        for each in rows
    }


def table(ours: Mapping[str, Outcome], theirs: Mapping[str, Outcome]) -> str:
    """Return both in figures, and our failures by reason."""
    counts = defaultdict[str, int](int)
    for name in {*ours, *theirs}:
        pair = [each.get(name) for each in (ours, theirs)]
        if any(each is None or each.skipped for each in pair):
            counts["skipped, or run with one alone"] += 1
            continue
        mine, its = (each is not None and each.passed for each in pair)
        counts[_KINDS[mine, its]] += 1
    lines = ["| | tests |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts.items()), ""]
    reasons = defaultdict[str, list[str]](list)
    for name, how in sorted(ours.items()):
        if not how.passed and not how.skipped:
            reasons[reason_of(name, how.words)].append(name)
    lines += ["| why localspec fails | tests | |", "|---|---|---|"]
    for reason, names in sorted(reasons.items(), key=lambda each: -len(each[1])):
        functions = dict.fromkeys(re.sub(r"^.*::|\[.*$", "", each) for each in names)
        lines.append(f"| {reason} | {len(names)} | {', '.join(functions)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
