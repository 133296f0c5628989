"""A process that writes an index, to be killed: `python -m tests.retrieval.background update|embed <database>`."""

import signal
import sys
from pathlib import Path

from localspec.retrieval.embedding import embed
from localspec.retrieval.index import Index
from localspec.retrieval.update import update


def stand_still(done: int, _total: int) -> None:
    print(done, flush=True)
    signal.pause()


if __name__ == "__main__":
    index = Index(Path(sys.argv[2]))
    if sys.argv[1] == "update":
        update(index, lambda changes: print(changes.done, flush=True))
    else:
        embed(index, stand_still)
