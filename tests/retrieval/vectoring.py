"""A process that makes the vectors of an index, and stands still after a line for the first batch: `python -m ... <database>`."""

import signal
import sys
from pathlib import Path

from localspec.retrieval.embedding import embed
from localspec.retrieval.index import Index


def main(path: str) -> None:
    def stand_still(done: int, _total: int) -> None:
        print(done, flush=True)
        signal.pause()

    embed(Index(Path(path)), stand_still)


if __name__ == "__main__":
    main(sys.argv[1])
