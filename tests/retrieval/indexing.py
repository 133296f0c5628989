"""A process that brings an index up to date, a line for each file: `python -m ... <database>`."""

import sys
from pathlib import Path

from localspec.retrieval.index import Index
from localspec.retrieval.update import update


def main(path: str) -> None:
    update(Index(Path(path)), lambda changes: print(changes.done, flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
