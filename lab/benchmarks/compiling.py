"""What it costs to have a schema compiled where it can be ended: a known one, a new one, and the first of a program.

    python -m lab.benchmarks.compiling [--schemas 200]

Each new schema is compiled by the guard, and by llguidance here, as before there was one, in turns; medians of milliseconds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from localspec.grammar.compiler import require_compiles
from localspec.grammar.json_schema import rewritten
from localspec.grammar.matcher import schema_source

_FIRST = """
import time, sys
from localspec.grammar import sources
from localspec.grammar.matcher import schema_source
def unguarded(source):
    from llguidance import LLMatcher, LLTokenizer
    LLMatcher(LLTokenizer("byte"), source, log_level=0)
if sys.argv[1] == "before":
    sources.start_compiler = lambda: None
    sources.require_compiles = unguarded
start_s = time.perf_counter()
sources.source_of("json_schema", '{"type": "object", "properties": {"city": {"type": "string"}}}')
print(1000 * (time.perf_counter() - start_s))
"""


def _schema(number: int) -> str:
    names = {f"name_{number}_{at}": {"type": "string", "maxLength": 40} for at in range(6)}
    kinds = {"enum": [f"kind {number}", "other"]}
    schema = {"type": "object", "properties": {**names, "kind": kinds}, "required": ["kind"]}
    return schema_source(json.dumps(rewritten(schema).schema))


def _ms(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start_s)


def _first(how: str) -> float:
    ended = subprocess.run(
        [sys.executable, "-c", _FIRST, how], capture_output=True, check=True, text=True
    )
    return float(ended.stdout)


def main() -> None:
    """Measure, and print."""
    from llguidance import LLMatcher, LLTokenizer

    parser = argparse.ArgumentParser()
    parser.add_argument("--schemas", type=int, default=200)
    count = parser.parse_args().schemas
    single_bytes = LLTokenizer("byte")
    require_compiles(_schema(-1))
    new, before, known = list[float](), list[float](), list[float]()
    for number in range(count):
        source = _schema(number)
        new.append(_ms(lambda: require_compiles(source)))  # noqa: B023 - called at once
        before.append(_ms(lambda: LLMatcher(single_bytes, source, log_level=0)))  # noqa: B023
        known.append(_ms(lambda: require_compiles(source)))  # noqa: B023
    for name, values in (("new", new), ("new, unguarded", before), ("known", known)):
        worst = sorted(values)[int(0.99 * len(values))]
        print(f"{name}: {statistics.median(values):.3f} ms, 99 % {worst:.3f}")
    first = [(_first("guarded"), _first("before")) for _ in range(9)]
    ratio = statistics.median(one - other for one, other in first)
    print(f"first of a program: {statistics.median(one for one, _ in first):.0f} ms, {ratio:+.0f} by the guard")  # fmt: skip


if __name__ == "__main__":
    main()
