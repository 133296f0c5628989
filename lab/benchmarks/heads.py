"""What heads propose on made models: acceptance by how much the target's layers count, and llama-server's own drafts on the same files.

Models of some kilobytes with random weights: no figure of theirs says what real heads earn. Greedy, drafts of three tokens.
From the root of a checkout: `python -m lab.benchmarks.heads [--against llama-server] [--replies 8]`.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lab.benchmarks.workbench import machine, opened
from lab.peers.server import PeerServer
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.llama import tiny_models

COUNTS = (0.003, 0.005, 0.008, 0.012, 0.02)
_LENGTH, _TOKENS, _CTX = 3, 100, 1024
_PROMPTS = [
    f"{start} goes on, and what follows is text number {start.lower()}."
    for start in (
        *(
            "One",
            "Another",
            "Some",
            "This",
            "That",
            "Every",
            "No",
            "Each",
            "Any",
            "Such",
            "Half",
            "Most",
        ),
    )
]


class Said(NamedTuple):
    """What came of the prompts: texts, and tokens drafted and accepted."""

    texts: tuple[str, ...]
    drafted: int
    accepted: int

    @property
    def rate(self) -> float:
        """Share of drafted tokens that were accepted."""
        return self.accepted / max(1, self.drafted)


def ours(
    target: Path, heads: Path | None, draft: str, prompts: Sequence[str], *, exact: bool
) -> Said:
    """Return what localspec says and drafts."""
    launch = LaunchOptions(
        target=str(target),
        draft_model=None if heads is None else str(heads),
        draft=draft,
        exact=exact,
        fit=False,
        load=LoadOptions(n_ctx=_CTX, threads=1),
    )
    options = ReplyOptions(seed=1, max_tokens=_TOKENS, sampling=SamplingParams(temperature=0))
    assistant = opened(launch).assistant
    with closing(assistant):
        replies = [assistant.reply(prompt, options) for prompt in prompts]
    done = [reply.acceptance for reply in replies]
    texts = tuple(str(reply.tokens) for reply in replies)
    return Said(texts, sum(each.drafted for each in done), sum(each.accepted for each in done))


def theirs(server: Path, target: Path, heads: Path | None, prompts: Sequence[str]) -> Said:
    """Return what llama-server says and drafts; texts as lists of ids."""
    kind = "draft-mtp" if heads is None else "draft-eagle3"
    flags = ["-m", str(target), "--spec-type", kind, "--spec-draft-n-max", str(_LENGTH)]
    flags += ["--spec-draft-p-min", "0", "-c", str(_CTX), "-t", "1", "-np", "1", "--no-warmup"]
    flags += [] if heads is None else ["--spec-draft-model", str(heads)]
    peer = PeerServer(server, flags)
    texts, drafted, accepted = [], 0, 0
    with closing(peer):
        for prompt in prompts:
            request = {"prompt": prompt, "temperature": 0, "n_predict": _TOKENS}
            ids: list[int] = []
            for chunk in peer.complete({**request, "cache_prompt": False, "return_tokens": True}):
                ids += chunk.get("tokens", ())
                timings = chunk.get("timings", {})
            texts.append(str(tuple(ids)))
            drafted += timings.get("draft_n", 0)
            accepted += timings.get("draft_n_accepted", 0)
    return Said(tuple(texts), drafted, accepted)


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="llama-server")
    parser.add_argument("--replies", type=int, default=len(_PROMPTS))
    asked = parser.parse_args()
    prompts = _PROMPTS[: asked.replies]
    print(f"{machine()}; {len(prompts)} replies of {_TOKENS} tokens\n")
    print("| heads | layers count | same text | accepted | llama-server | same text as there |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for counts in COUNTS:
            hybrid = tiny_models.write_qwen35(Path(folder, "hybrid.gguf"), counts)
            llama = tiny_models.write_llama(Path(folder, "llama.gguf"), counts)
            mtp = tiny_models.write_qwen35(Path(folder, "mtp.gguf"), counts, mtp=1)
            eagle3 = tiny_models.write_eagle3(Path(folder, "eagle3.gguf"))
            few = tiny_models.write_eagle3(Path(folder, "few.gguf"), ids=range(0, 256, 2))
            for name, target, heads in (
                ("MTP, qwen35", mtp, None),
                ("EAGLE-3, llama", llama, eagle3),
                ("EAGLE-3, llama, half the ids", llama, few),
                ("EAGLE-3, qwen35", hybrid, eagle3),
            ):
                plain = ours(target, heads, "off", prompts, exact=True)
                said = ours(target, heads, "heads", prompts, exact=True)
                same = sum(map(str.__eq__, plain.texts, said.texts))
                row = [name, f"{counts:g}", f"{same} of {len(prompts)}"]
                row.append(f"{said.accepted} of {said.drafted} ({said.rate:.2f})")
                if asked.against is not None:
                    usual = ours(target, heads, "heads", prompts, exact=False)
                    peer = theirs(asked.against, target, heads, prompts)
                    alike = sum(map(str.__eq__, usual.texts, peer.texts))
                    row.append(f"{peer.accepted} of {peer.drafted} ({peer.rate:.2f})")
                    row.append(f"{alike} of {len(prompts)}")
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
