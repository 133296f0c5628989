"""Vectors beside llama-server's: `python -m lab.vectors PATH/llama-server FILE NAME`, with FILE imported as NAME and `serve` at port 8080."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from statistics import median

import httpx
import numpy as np

from lab.peers import PeerServer
from lab.retrieval.measure import QUESTIONS

_ROUNDS, _TEXTS, _FLAGS = 7, 64, ("--embeddings", "-b", "2048", "-ub", "2048")


def vectors(url: str, name: str, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts."""
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": name, "input": texts}, timeout=600)
    return np.array([each["embedding"] for each in answer.raise_for_status().json()["data"]])


def main(program: Path, file: str, name: str) -> None:
    """Print how alike they are, and texts a second by words of a text, texts of a request, and clients; neighbouring runs take turns."""
    words = QUESTIONS.read_text().split()
    with closing(PeerServer(program, ["-m", file, *_FLAGS])) as peer:
        urls = {"localspec": "http://127.0.0.1:8080", "llama-server": peer.address}
        for length, size, clients in product((10, 150), (1, 32), (1, 4)):
            starts = Random(length).sample(range(len(words) - length), _TEXTS)
            texts = [" ".join(words[at : at + length]) for at in starts]
            parts = [texts[at : at + size] for at in range(0, _TEXTS, size)]
            rates: dict[str, list[float]] = {each: [] for each in urls}
            found: dict[str, np.ndarray] = {}
            for server in [*urls, *reversed(urls)] * _ROUNDS:
                begun_s = time.perf_counter()
                with ThreadPoolExecutor(clients) as pool:
                    rows = list(pool.map(partial(vectors, urls[server], name), parts))
                rates[server].append(_TEXTS / (time.perf_counter() - begun_s))
                found[server] = np.vstack(rows)
            ours, theirs = map(median, rates.values())
            alike = np.sum(np.multiply(*found.values()), axis=1).min()
            print(
                f"{length} words, {size} a request, {clients} clients: least cosine {alike:.6f}; "
                f"{ours:.0f} and {theirs:.0f} texts a second, {ours / theirs:.2f}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
