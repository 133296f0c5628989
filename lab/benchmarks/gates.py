"""What gates let through, mask by mistake, and cost: `python -m lab.benchmarks.gates MODEL.gguf [--secrets N] [--seed S]`.

Planted secrets are spelled by the model's own vocabulary, stand in sentences, and go through a gate token by token, as without drafting, and
in rounds of random widths, as with it; each text is also ended after every one of its tokens. Nothing is generated: the
gate sees confirmed tokens alone, so those are all that can differ.
"""

import argparse
import codecs
import inspect
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median, quantiles

from lab.benchmarks.workbench import machine
from lab.planted import FORMATS, Planted, planted
from localspec.chat.events import Text
from localspec.chat.gated import GatedReply
from localspec.gates.gate import Gate, usual_gate
from localspec.llama.model import LlamaModel
from localspec.llama.vocabulary import Vocabulary
from localspec.options import LoadOptions

_AROUND = (
    ("Use ", " for now, and change it later."),
    ("export TOKEN=", "\nThen start the server."),
    ('{"value": "', '", "ok": true}'),
    ("| name | `", "` | see below |"),
    ("(", ") is what they sent me."),
)
_MOST_ROUND = 8
_FIRST_DIGITS = 9
_SOURCE_BYTES = 1 << 20


def pieces_of(vocabulary: Vocabulary, text: str) -> list[str]:
    """Return what each token of a text adds to it."""
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(vocabulary.piece(each)) for each in tokens]


def shown(gate: Gate, chunks: Sequence[str], *, cut: bool = False) -> Iterator[str]:
    """Yield what is seen after each chunk, and after the end."""
    reply, seen = GatedReply(gate), ""
    for chunk in chunks:
        told = reply.take(Text(chunk)) if chunk else []
        seen += "".join(each.text for each in told if isinstance(each, Text))
        yield seen
    seen += "".join(each.text for each in reply.flush(cut=cut) if isinstance(each, Text))
    yield seen


def shows(secret: Planted, seen: str) -> bool:
    """Return whether any five characters of what must not be seen are."""
    return any(secret.body[at : at + 5] in seen for at in range(len(secret.body) - 4))


def leaks(secret: Planted, about: str, seen: str, size: int) -> bool:
    """Return whether a part of a secret is seen of which so many characters were said."""
    few = _FIRST_DIGITS if secret.rule in {"telephone number", "payment card"} else 0
    said = secret.text[: min(size, len(secret.text))]
    if len(said) <= len(secret.head) + few:
        return False
    known = seen.removeprefix(about)
    return known.startswith(secret.text[: len(secret.head) + few + 1])


def planted_secrets(vocabulary: Vocabulary, count: int, seed: int) -> None:
    """Print how many secrets were seen, whole or in part."""
    gate, random = usual_gate(), Random(seed)
    seen_of, others, ends, drafted, differ = Counter[str](), Counter[str](), 0, 0, 0
    shows_head = {each.rule.name for each in gate.rules.rules if each.rule.shows_head}
    for number in range(count):
        which = [*FORMATS][number % len(FORMATS)]
        secret, (about, behind) = planted(random, which), random.choice(_AROUND)
        pieces = pieces_of(vocabulary, about + secret.text + behind)
        text = "".join(pieces)
        assert text.endswith(about + secret.text + behind)
        about = text[: len(text) - len(secret.text) - len(behind)]
        head = secret.head if secret.rule in shows_head else ""
        wanted = f"{about}{head}[masked: {secret.rule}]{behind}"
        *steps, whole = shown(gate, pieces)
        others[which] += whole != wanted
        seen_of[which] += any(shows(secret, each) for each in (*steps, whole))
        for _ in range(2):
            rounds = [*_rounds(random, pieces)]
            *steps, other = shown(gate, rounds)
            drafted += 1
            differ += other != whole
            seen_of[which] += any(shows(secret, each) for each in steps)
        for end in range(1, len(pieces)):
            *_, last = shown(gate, pieces[:end], cut=True)
            ends += 1
            said = len("".join(pieces[:end])) - len(about)
            seen_of[which] += leaks(secret, about, last, said)
    print(f"{count} secrets of {len(FORMATS)} formats, each alone, and {drafted} times in rounds;")
    print(f"{ends} times ended after a token")
    print(f"seen, whole or in part: {sum(seen_of.values())} {dict(+seen_of)}")
    print(f"texts that differ from the one without drafting: {differ}")
    print(f"masked by another rule, which begins before: {sum(others.values())}")


def _rounds(random: Random, pieces: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(pieces):
        width = random.randint(1, _MOST_ROUND)
        yield "".join(pieces[at : at + width])
        at += width


def sources() -> list[str]:
    """Return the first megabyte of the standard library's modules."""
    found, size = list[str](), 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(errors="replace")
        if size + len(text) > _SOURCE_BYTES:
            break
        found.append(text)
        size += len(text)
    return found


def false_alarms() -> None:
    """Print what is found in the standard library, by rule; its addresses are real."""
    gate, counts = usual_gate(), Counter[tuple[str, str]]()
    texts, start = sources(), time.perf_counter()
    for text in texts:
        for begin, end in gate.hidden(text):
            counts[gate.cleaned(text[begin:end]), text[begin:end]] += 1
    took = time.perf_counter() - start
    size = sum(map(len, texts))
    print(f"\n{size} characters of {len(texts)} modules of the standard library, {took:.2f} s:")
    for (rule, text), count in sorted(counts.items()):
        print(f"  {count} times {rule} {text!r}")


def cost(vocabulary: Vocabulary) -> None:
    """Print what a gate adds to a token, and how long text is held back."""
    chunks = ["".join(inspect.getsource(each)) for each in (argparse, inspect)]
    pieces = [each for text in chunks for each in pieces_of(vocabulary, text[:40_000])]
    events = [Text(each) for each in pieces if each]
    usual_gate().cleaned("".join(chunks))  # states are made at first
    reply, gate_s, held, waits = GatedReply(usual_gate()), list[float](), list[int](), 0
    for event in events:
        start = time.perf_counter()
        told = reply.take(event)
        gate_s.append(time.perf_counter() - start)
        waits = 0 if told else waits + 1
        held.append(waits)
    cuts = quantiles(gate_s, n=1000)
    print(f"\n{len(events)} tokens of source code, one at a time:")
    print(
        f"  a token: {1e6 * median(gate_s):.1f} µs in the median, {1e6 * cuts[989]:.0f} at 99 %, "
        f"{1e6 * cuts[998]:.0f} at 99.9 %, {1e6 * max(gate_s):.0f} at most"
    )
    print(
        f"  tokens after which nothing new was seen: {sum(map(bool, held)) / len(held):.1%}, at most "
        f"{max(held)} in a row"
    )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a GGUF file, of which the vocabulary is used")
    parser.add_argument("--secrets", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=21)
    arguments = parser.parse_args()
    options = LoadOptions(gpu_layers=0, repack=False, load_mode="mmap")
    loaded = LlamaModel(arguments.model, options)
    print(f"{machine()}; {arguments.model.name}")
    try:
        planted_secrets(loaded.vocabulary, arguments.secrets, arguments.seed)
        false_alarms()
        cost(loaded.vocabulary)
    finally:
        loaded.close()


if __name__ == "__main__":
    main()
