"""What heads propose on made models, one answer and four at a time, and what llama-server drafts on the same files.

Models of some kilobytes with random weights: no figure of theirs says what real heads earn. Greedy, drafts of three tokens,
or of a whole block, kernels of `--exact` here and there. From the root of a checkout:

    python -m lab.benchmarks.heads [--against PATH/llama-server] [--replies 200] [--counts 0.008]
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx

from lab.benchmarks.workbench import machine, opened
from lab.peers import PeerServer
from localspec.chat.request import Request
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.chat.answers import answers
from tests.llama import tiny_models
from tests.llama.tiny_gguf import TOKENS

_TOKENS, _CTX, _CHUNK = 60, 1024, 128
_WORDS = [
    "one",
    "another",
    "some",
    "this",
    "that",
    "every",
    "no",
    "each",
    "any",
    "such",
    "half",
    "most",
]


class Kind(NamedTuple):
    """A target, its heads, what llama-server calls drafting with them, and how many tokens a round they draft."""

    name: str
    target: Path
    heads: Path | None
    spec: str
    length: int = 3


class Counted(NamedTuple):
    """What came of a prompt: ids, and how many tokens were drafted and accepted."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int


def kinds(folder: Path, counts: float) -> Iterator[Kind]:
    """Write files, and yield what they are."""
    qwen35 = tiny_models.write_qwen35(folder / "qwen35.gguf", counts)
    llama = tiny_models.write_llama(folder / "llama.gguf", counts)
    mtp = tiny_models.write_qwen35(folder / "mtp.gguf", counts, mtp=1)
    several = tiny_models.write_windowed(folder / "step35.gguf", counts, mtp=3)
    eagle3 = tiny_models.write_eagle3(folder / "eagle3.gguf")
    few = tiny_models.write_eagle3(folder / "few.gguf", ids=range(0, 256, 2))
    yield Kind("MTP, qwen35", mtp, None, "draft-mtp")
    yield Kind("three MTP layers, step35", several, None, "draft-mtp")
    yield Kind("EAGLE-3, llama", llama, eagle3, "draft-eagle3")
    yield Kind("EAGLE-3, half the ids", llama, few, "draft-eagle3")
    yield Kind("EAGLE-3, qwen35", qwen35, eagle3, "draft-eagle3")
    marked = tiny_models.write_llama(folder / "marked.gguf", counts, marked=True)
    hybrid = tiny_models.write_qwen35(folder / "hybrid.gguf", counts, marked=True)
    dflash = tiny_models.write_dflash(folder / "dflash.gguf")
    mrope = tiny_models.write_dflash(folder / "mrope.gguf", mrope=True)
    half = tiny_models.write_dflash(folder / "half.gguf", ids=range(0, 256, 2))
    dflash2 = tiny_models.write_dflash(folder / "dflash2.gguf", kind="dflash2")
    dspark = tiny_models.write_dflash(folder / "dspark.gguf", kind="dspark")
    bonus = tiny_models.write_dflash(folder / "bonus.gguf", kind="dspark", anchored=False)
    yield Kind("DFlash, llama", marked, dflash, "draft-dflash", 7)
    yield Kind("DFlash, qwen35", hybrid, mrope, "draft-dflash", 7)
    yield Kind("DFlash, half the ids", marked, half, "draft-dflash", 7)
    yield Kind("DFlash 2", marked, dflash2, "draft-dflash", 7)
    yield Kind("DSpark", marked, dspark, "draft-dspark", 8)
    yield Kind("DSpark, bonus first", marked, bonus, "draft-dspark", 7)
    gemma4 = tiny_models.write_gemma4(folder / "gemma4.gguf", counts)
    assistant = tiny_models.write_assistant(folder / "assistant.gguf")
    yield Kind("assistant of Gemma 4", gemma4, assistant, "draft-mtp")


def prompts(count: int) -> list[str]:
    """Return prompts, no two the same."""
    starts = (_WORDS[number % len(_WORDS)] for number in range(count))
    return [f"{each} goes on, text number {number}." for number, each in enumerate(starts)]


def ours(kind: Kind, draft: str, texts: Sequence[str], parallel: int = 1) -> list[Counted]:
    """Return what localspec writes and drafts."""
    launch = LaunchOptions(
        target=str(kind.target),
        draft_model=None if kind.heads is None else str(kind.heads),
        draft=draft,
        exact=True,
        fit=False,
        load=LoadOptions(n_ctx=_CTX, threads=1, n_batch=_CHUNK),
    )
    options = ReplyOptions(seed=1, max_tokens=_TOKENS, sampling=SamplingParams(temperature=0))
    requests = (
        Request(number, (Message.user(text),), options, deterministic=True)
        for number, text in enumerate(texts)
    )
    assistant, counted = opened(launch, parallel=parallel).assistant, dict[int, Counted]()
    with closing(assistant):
        for each in answers(assistant, requests):
            assert each.reply is not None, each.error
            had = each.reply.acceptance
            counted[each.key] = Counted(_less_end(each.reply.tokens), had.drafted, had.accepted)
    return [counted[number] for number in range(len(texts))]


def theirs(server: Path, kind: Kind, texts: Sequence[str]) -> list[Counted]:
    """Return what llama-server writes and drafts."""
    flags = [
        "-m",
        str(kind.target),
        "--spec-type",
        kind.spec,
        "--spec-draft-n-max",
        str(kind.length),
    ]
    flags += ["--spec-draft-p-min", "0", "-c", str(_CTX), "-t", "1", "-np", "1", "--no-warmup"]
    flags += ["-b", str(_CHUNK), "-ub", str(_CHUNK), "--no-repack", "-fa", "on"]
    flags += [*("-ctk", "bf16", "-ctv", "bf16"), *("-ctkd", "bf16", "-ctvd", "bf16")]
    flags += [] if kind.heads is None else ["--spec-draft-model", str(kind.heads)]
    with closing(PeerServer(server, flags)) as peer:
        return [_completed(peer.address, text) for text in texts]


def _completed(address: str, text: str) -> Counted:
    """Ask for an answer in one piece: a stream leaves out ids whose bytes are no text by themselves."""
    body = {"prompt": text, "temperature": 0, "n_predict": _TOKENS, "cache_prompt": False}
    done = httpx.post(
        f"{address}/completion", json={**body, "return_tokens": True}, timeout=120
    ).json()
    timings = done["timings"]
    drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    return Counted(_less_end(done["tokens"]), drafted, accepted)


def _less_end(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return ids without the one that ends a reply: llama-server keeps it to itself."""
    return tuple(tokens[:-1] if tokens and tokens[-1] == TOKENS - 1 else tokens)


def _sum(counted: Sequence[Counted]) -> str:
    return f"{sum(each.accepted for each in counted)} of {sum(each.drafted for each in counted)}"


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="llama-server")
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--only", default="", help="a part of the names of kinds")
    parser.add_argument("--counts", type=float, nargs="+", default=[0.008])
    flags = parser.parse_args()
    texts = prompts(flags.replies)
    print(f"{machine()}; {len(texts)} replies of {_TOKENS} tokens\n")
    print("| heads | layers count | same text | four at a time | accepted | llama-server | same |")
    print("|---|---|---|---|---|---|---|")
    for counts in flags.counts:
        with tempfile.TemporaryDirectory() as folder:
            for kind in kinds(Path(folder), counts):
                if flags.only not in kind.name:
                    continue
                plain = ours(kind, "off", texts)
                alone = ours(kind, f"heads:{kind.length}", texts)
                beside = ours(kind, f"heads:{kind.length}", texts, parallel=4)
                row = [kind.name, f"{counts:g}"]
                for counted in (alone, beside):
                    same = sum(a.tokens == b.tokens for a, b in zip(plain, counted, strict=True))
                    row.append(f"{same}")
                row.append(_sum(alone))
                if flags.against is not None:
                    peer = theirs(flags.against, kind, texts)
                    alike = sum(a == b for a, b in zip(alone, peer, strict=True))
                    row += [_sum(peer), f"{alike}"]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
