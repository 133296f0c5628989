"""What a schema's grammar lets through, judged by jsonschema: converters beside each other, schema by schema.

    python -m lab.grammars.differential walk SIDE --into FILE [--own N] [--suite GIT] [--bench GIT] [--every K] [--walks 5]
    python -m lab.grammars.differential table FILE...

`walk` takes each schema with one converter, draws texts from its grammar by chance, tries the instances that come
with the schema, and appends a line of JSON to FILE for each that is not in it yet. SIDE is `localspec`, or `llguidance` as it comes, with its
own treatment of `oneOf` and of white space. `--suite` and `--bench` name bare git directories of
json-schema-org/JSON-Schema-Test-Suite and guidance-ai/jsonschemabench. `table` prints what the files come to, and
which schemas only one of them takes.

Unsound is a schema of which a text is let through that jsonschema says is invalid.
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from random import Random
from typing import Any

from lab.grammars.corpus import Example, bench, own, suite
from lab.grammars.judge import Judge
from lab.grammars.walks import END, DeadEndError, walk

_MOST_S = 20.0
_SHOWN = 5


class RefusedError(Exception):
    """A converter does not take a schema."""


class _Matcher:
    """llguidance's matcher over bytes."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._require_sane()

    def may_follow(self) -> Collection[int]:
        mask = self._matcher.compute_bitmask()
        self._require_sane()
        found = {byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1}
        return found | {END} if self._matcher.is_accepting() else found

    def take(self, byte: int) -> None:
        self._matcher.consume_token(byte)
        self._require_sane()

    def take_all(self, text: bytes) -> bool:
        """Go on behind a text; False where it may not follow."""
        taken: int = self._matcher.try_consume_tokens(list(text))
        self._require_sane()
        return taken == len(text)

    def copy(self) -> "_Matcher":
        return _Matcher(self._matcher.deep_copy())

    def _require_sane(self) -> None:
        if self._matcher.is_error():
            raise RefusedError(self._matcher.get_error())


def _localspec() -> Callable[[Any], Callable[[], _Matcher]]:
    from localspec.errors import LocalspecError
    from localspec.grammar.matcher import byte_tokenizer, compiled
    from localspec.grammar.sources import source_of

    def take(schema: Any) -> Callable[[], _Matcher]:
        try:
            source = source_of("json_schema", json.dumps(schema))
        except LocalspecError as error:
            raise RefusedError(str(error)) from None
        return _Matcher(compiled(source, byte_tokenizer())).copy

    return take


def _llguidance() -> Callable[[Any], Callable[[], _Matcher]]:
    from llguidance import LLMatcher, LLTokenizer

    tokenizer = LLTokenizer("byte")

    def take(schema: Any) -> Callable[[], _Matcher]:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        return _Matcher(LLMatcher(tokenizer, grammar)).copy

    return take


def _record(example: Example, take: Any, walks: int) -> dict[str, Any]:
    """Return what became of one schema."""
    started = time.monotonic()
    found: dict[str, Any] = {"name": example.name, "unsound": [], "dead_ends": []}
    counts: Counter[str] = Counter()
    try:
        taken = take(example.schema)
        found["compiled_s"] = time.monotonic() - started
        judge = Judge(example.schema)
        for text in _walks(taken, walks, found, counts):
            _judge(judge, text, found, counts)
            if time.monotonic() - started > _MOST_S:
                break
        for value, valid in example.instances:
            _try(taken, value, valid, found, counts)
    except RefusedError as error:
        found["refused"] = " ".join(str(error).split())[:300]
    return found | dict(counts) | {"seconds": time.monotonic() - started}


def _walks(
    taken: Callable[[], _Matcher], walks: int, found: dict[str, Any], counts: Counter[str]
) -> Iterator[str]:
    for seed in range(walks):
        try:
            text = walk(taken(), Random(seed))
        except DeadEndError as error:
            found["dead_ends"].append(str(error))
            continue
        counts["unfinished"] += text is None
        if text is not None:
            yield text.decode()


def _judge(judge: Judge, text: str, found: dict[str, Any], counts: Counter[str]) -> None:
    counts["texts"] += 1
    try:
        valid = judge.valid(json.loads(text))
    except ValueError:
        valid = False
    if valid is None:
        counts["unjudged"] += 1
    elif not valid:
        found["unsound"].append(text[:600])


def _try(
    taken: Callable[[], _Matcher],
    value: Any,
    valid: bool,
    found: dict[str, Any],
    counts: Counter[str],
) -> None:
    """Try an instance that is known to be valid or not."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        grammar = taken()
        accepted = grammar.take_all(text.encode(errors="replace")) and END in grammar.may_follow()
    except RefusedError:
        accepted = False
    counts["valid" if valid else "invalid"] += 1
    if accepted:
        counts["valid_accepted" if valid else "invalid_accepted"] += 1
    if accepted and not valid:
        found["unsound"].append(f"instance {text[:600]}")


def _table(files: list[Path]) -> None:
    sides = {file.stem: _read(file) for file in files}
    print(
        "| | schemas | accepted | sound | unsound | refused | dead ends | texts | unjudged | valid instances taken |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for side, records in sides.items():
        by_source = defaultdict(list)
        for record in records.values():
            by_source[_source(record["name"])].append(record)
        for source, some in by_source.items():
            _row(f"{side}, {source}", some)
    if len(sides) == 2:
        (one, ours), (other, theirs) = sides.items()
        for name, mine, yours in ((one, ours, theirs), (other, theirs, ours)):
            only = [
                each
                for each in mine
                if "refused" not in mine[each] and "refused" in yours.get(each, {})
            ]
            print(f"\nonly {name}: {len(only)}")
            reasons = Counter(_kind(yours[each]["refused"]) for each in only)
            for reason, count in reasons.most_common(12):
                print(f"    {count:5d} {reason}")


def _row(title: str, records: list[dict[str, Any]]) -> None:
    accepted = [each for each in records if "refused" not in each]
    unsound = [each for each in accepted if each["unsound"]]

    def total(name: str) -> int:
        return sum(each.get(name, 0) for each in accepted)

    print(
        f"| {title} | {len(records)} | {len(accepted)} | {len(accepted) - len(unsound)} | {len(unsound)} | {len(records) - len(accepted)} | "
        f"{sum(bool(each['dead_ends']) for each in accepted)} | {total('texts')} | {total('unjudged')} | "
        f"{total('valid_accepted')} of {total('valid')} |"
    )
    for each in unsound[:_SHOWN]:
        print(f"    unsound {each['name']}: {each['unsound'][0][:200]}", file=sys.stderr)


def _read(file: Path) -> dict[str, dict[str, Any]]:
    with file.open() as lines:
        return {record["name"]: record for record in map(json.loads, lines)}


def _source(name: str) -> str:
    if name.startswith(("asked ", "random ")):
        return name.split(maxsplit=1)[0]
    return "suite" if name.startswith("tests/") else "bench"


def _kind(reason: str) -> str:
    """Return a reason without what is particular to a schema."""
    return reason.partition(" at ")[2].partition(": ")[2][:60] or reason[:60]


def main() -> None:
    """Walk, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    walking = actions.add_parser("walk")
    walking.add_argument("side", choices=["localspec", "llguidance"])
    walking.add_argument("--into", type=Path, required=True)
    walking.add_argument("--own", type=int, default=0)
    walking.add_argument("--suite", type=Path)
    walking.add_argument("--bench", type=Path)
    walking.add_argument("--every", type=int, default=1, help="take one schema of so many")
    walking.add_argument("--walks", type=int, default=5)
    actions.add_parser("table").add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.action == "table":
        _table(given.files)
        return
    take = {"localspec": _localspec, "llguidance": _llguidance}[given.side]()
    sources = [
        own(given.own) if given.own else (),
        suite(given.suite) if given.suite else (),
        bench(given.bench) if given.bench else (),
    ]
    done = _read(given.into) if given.into.exists() else {}
    with given.into.open("a") as into:
        for index, example in enumerate(each for source in sources for each in source):
            if index % given.every == 0 and example.name not in done:
                record = _record(example, take, given.walks)
                into.write(json.dumps(record) + "\n")
                into.flush()


if __name__ == "__main__":
    main()
