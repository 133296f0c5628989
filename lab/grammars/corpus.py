"""Schemas to measure with, each with instances that are known to be valid or not.

Three sources: this checkout's own test schemas; the JSON-Schema-Test-Suite; and JSONSchemaBench's real schemas
(`maskbench/data`). The latter two are read from bare git directories of the public repositories.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.grammar.random_schemas import random_schema
from tests.grammar.schemas import ASKED


class Example(NamedTuple):
    """A schema, and what is known of it.

    Args:
        name: unique among all sources.
        schema: as `json.loads` gives it.
        instances: values, and whether each is valid.
    """

    name: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...] = ()


def own(random: int = 2_000) -> Iterator[Example]:
    """Yield the schemas of the tests, and so many random ones."""
    for each in ASKED:
        yield Example(f"asked {each.name}", each.schema)
    for seed in range(random):
        yield Example(f"random {seed}", random_schema(seed))


def suite(git_dir: Path, draft: str = "draft2020-12") -> Iterator[Example]:
    """Yield the cases of the JSON-Schema-Test-Suite, those that the standard leaves open included."""
    for path, content in _files(git_dir, f"tests/{draft}"):
        for index, case in enumerate(json.loads(content)):
            instances = tuple((test["data"], test["valid"]) for test in case["tests"])
            yield Example(f"{path} {index}", case["schema"], instances)


def bench(git_dir: Path) -> Iterator[Example]:
    """Yield the real schemas of JSONSchemaBench, with the instances of its MaskBench."""
    for path, content in _files(git_dir, "maskbench/data"):
        found = json.loads(content)
        instances = tuple((test["data"], test["valid"]) for test in found["tests"])
        yield Example(Path(path).stem, found["schema"], instances)


def _files(git_dir: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each JSON file of the newest commit; a snapshot may lack its largest ones."""
    git = ["git", f"--git-dir={git_dir}"]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", "HEAD", folder], check=True, capture_output=True
    )
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for line in filter(None, listed.stdout.decode().split("\0")):
            facts, path = line.split("\t")
            if not path.endswith(".json"):
                continue
            reader.stdin.write(f"{facts.split()[2]}\n".encode())
            reader.stdin.flush()
            header = reader.stdout.readline().split()
            if header[-1] != b"missing":
                yield path, reader.stdout.read(int(header[2]) + 1)
        reader.stdin.close()
