"""A process that makes the vectors of an index, a line for each batch: `python -m ... <database>`."""

import sys
from pathlib import Path

from localspec.retrieval.embedding import embed
from localspec.retrieval.index import Index


def main(path: str) -> None:
    embed(Index(Path(path)), lambda done, _total: print(done, flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
