"""What a guard costs: how long a verdict takes, and how long sentences are held back while an answer is made.

    python -m lab.benchmarks.guard MODEL [--words-per-s 12] [--chars 4000]

The answer is the beginning of docs/design.md, word by word at a given pace; nothing generates it, so the guard has the machine to itself but for half of its
cores. Whether the verdicts are right is not asked.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from statistics import median

from lab.benchmarks.workbench import machine
from localspec.chat.events import Text
from localspec.chat.gated import GatedReply
from localspec.gates.gate import Gate, gate_of_toml
from localspec.gates.guard import Judgement, Verdict
from localspec.gates.sentences import Sentences
from localspec.launch.guard import GuardProcess, guard_process

_ANSWER = Path(__file__).parents[2] / "docs/design.md"
_QUESTION = "How is localspec built?"


class Timed:
    """A guard of which every verdict is timed; one at a time, as replies ask it."""

    def __init__(self, process: GuardProcess) -> None:
        self._process = process
        self.seconds: list[float] = []
        self.verdicts: Counter[Verdict] = Counter()

    def ask(self, question: str, before: str, text: str, wait_s: float) -> Judgement:
        """Have a sentence judged."""
        return _TimedJudgement(self, self._process.ask(question, before, text, wait_s))


class _TimedJudgement:
    def __init__(self, timed: Timed, judgement: Judgement) -> None:
        self._timed, self._judgement, self._start_s = timed, judgement, time.perf_counter()

    @property
    def verdict(self) -> Verdict | None:
        found = self._judgement.verdict
        if found is not None:
            self._note(found)
        return found

    def wait(self) -> Verdict:
        found = self._judgement.wait()
        self._note(found)
        return found

    def _note(self, verdict: Verdict) -> None:
        self._timed.seconds.append(time.perf_counter() - self._start_s)
        self._timed.verdicts[verdict] += 1


def held_back(gate: Gate, text: str, words_per_s: float) -> list[float]:
    """Return how long after its last character each sentence was seen."""
    reply, reader = GatedReply(gate, question=_QUESTION), Sentences()
    ends, delays, seen = list[tuple[int, float]](), list[float](), 0
    said = 0

    def note(shown: int) -> None:
        while ends and ends[0][0] <= shown:
            delays.append(time.perf_counter() - ends.pop(0)[1])

    for word in text.split(" "):
        for sentence in reader.feed(word + " "):
            said += len(sentence)
            ends.append((said, time.perf_counter()))
        told = reply.take(Text(word + " "))
        seen += sum(len(each.text) for each in told if isinstance(each, Text))
        note(seen)
        time.sleep(1 / words_per_s)
    while reply.pending:
        seen += sum(len(each.text) for each in reply.released() if isinstance(each, Text))
        note(seen)
        time.sleep(0.002)
    return delays


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--words-per-s", type=float, default=12.0)
    parser.add_argument("--chars", type=int, default=4000)
    given = parser.parse_args()
    process = guard_process(given.model, offline=True, on_download=lambda _: None)
    begun_s = time.perf_counter()
    process.start()
    loaded_s = time.perf_counter() - begun_s
    timed = Timed(process)
    # What is unsafe is let through, so that what is seen is what was said.
    rules = f'use = []\nguard = "{given.model}"\nguard_action = "note"\nguard_fails = "open"'
    rules += "\nguard_wait_s = 600"
    found = gate_of_toml(rules, "gate")
    gate = Gate(found.automaton, found.actions, found.origin, found.guard, timed)
    try:
        delays = held_back(gate, _ANSWER.read_text()[: given.chars], given.words_per_s)
    finally:
        process.close()
    print(f"{machine()}; {given.model}, loaded in {loaded_s:.1f} s")
    print(f"{len(timed.seconds)} sentences, verdicts {dict(timed.verdicts)}")
    for name, seconds in (
        ("a verdict", timed.seconds),
        ("from a sentence's end until it is seen", delays),
    ):
        print(f"{name}: {median(seconds):.2f} s in the median, {max(seconds):.2f} at most")


if __name__ == "__main__":
    main()
