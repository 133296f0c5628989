"""What heads propose on made models: acceptance by how much the target's layers count, and llama-server's own drafts on the same files.

Models of some kilobytes with random weights: no figure of theirs says what real heads earn. Greedy, drafts of three tokens, kernels
of `--exact` here and there. From the root of a checkout: `python -m lab.benchmarks.heads [--against llama-server] [--replies 8]`.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from lab.benchmarks.workbench import machine, opened
from lab.peers import PeerServer
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.llama import tiny_models
from tests.llama.tiny_gguf import TOKENS

COUNTS = (0.003, 0.005, 0.008, 0.012, 0.02)
_LENGTH, _TOKENS, _CTX, _CHUNK = 3, 100, 1024, 128
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
    """What came of a prompt: ids, and how many tokens were drafted and accepted."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int


def ours(target: Path, heads: Path | None, draft: str, prompts: Sequence[str]) -> list[Said]:
    """Return what localspec says and drafts."""
    launch = LaunchOptions(
        target=str(target),
        draft_model=None if heads is None else str(heads),
        draft=draft,
        exact=True,
        fit=False,
        load=LoadOptions(n_ctx=_CTX, threads=1, n_batch=_CHUNK),
    )
    options = ReplyOptions(seed=1, max_tokens=_TOKENS, sampling=SamplingParams(temperature=0))
    assistant = opened(launch).assistant
    with closing(assistant):
        replies = [assistant.reply(prompt, options) for prompt in prompts]
    done = [(reply, reply.acceptance) for reply in replies]
    return [Said(_less_end(reply.tokens), had.drafted, had.accepted) for reply, had in done]


def theirs(server: Path, target: Path, heads: Path | None, prompts: Sequence[str]) -> list[Said]:
    """Return what llama-server says and drafts."""
    kind = "draft-mtp" if heads is None else "draft-eagle3"
    flags = ["-m", str(target), "--spec-type", kind, "--spec-draft-n-max", str(_LENGTH)]
    flags += ["--spec-draft-p-min", "0", "-c", str(_CTX), "-t", "1", "-np", "1", "--no-warmup"]
    flags += ["-b", str(_CHUNK), "-ub", str(_CHUNK), "--no-repack", "-fa", "on"]
    flags += [*("-ctk", "bf16", "-ctv", "bf16"), *("-ctkd", "bf16", "-ctvd", "bf16")]
    flags += [] if heads is None else ["--spec-draft-model", str(heads)]
    with closing(PeerServer(server, flags)) as peer:
        return [_completed(peer.address, prompt) for prompt in prompts]


def _completed(address: str, prompt: str) -> Said:
    """Ask for an answer in one piece: a stream leaves out ids whose bytes are no text by themselves."""
    body = {"prompt": prompt, "temperature": 0, "n_predict": _TOKENS, "cache_prompt": False}
    request = Request(f"{address}/completion", json.dumps({**body, "return_tokens": True}).encode())
    with urlopen(request, timeout=120) as response:
        found = json.load(response)
    timings = found["timings"]
    drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    return Said(_less_end(found["tokens"]), drafted, accepted)


def _less_end(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return ids without the one that ends a reply: llama-server keeps it to itself."""
    return tuple(tokens[:-1] if tokens and tokens[-1] == TOKENS - 1 else tokens)


def _counted(said: Sequence[Said]) -> str:
    drafted, accepted = sum(each.drafted for each in said), sum(each.accepted for each in said)
    return f"{accepted} of {drafted} ({accepted / max(1, drafted):.2f})"


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="llama-server")
    parser.add_argument("--replies", type=int, default=len(_PROMPTS))
    asked = parser.parse_args()
    prompts = _PROMPTS[: asked.replies]
    print(f"{machine()}; {len(prompts)} replies of {_TOKENS} tokens\n")
    print("| heads | layers count | same text | accepted | llama-server | same text and counts |")
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
                plain = ours(target, heads, "off", prompts)
                said = ours(target, heads, "heads", prompts)
                same = sum(a.tokens == b.tokens for a, b in zip(plain, said, strict=True))
                row = [name, f"{counts:g}", f"{same} of {len(prompts)}", _counted(said)]
                if asked.against is not None:
                    peer = theirs(asked.against, target, heads, prompts)
                    alike = sum(a == b for a, b in zip(said, peer, strict=True))
                    row += [_counted(peer), f"{alike} of {len(prompts)}"]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
