"""A guard that tells a script: unsafe is what has a word in it; verdicts come when they are due, or never."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from localspec.gates.gate import Gate, gate_of_toml
from localspec.gates.guard import Verdict

GOOD = 'use = []\nguard = "a-guard"\n'


@dataclass(slots=True, eq=False)
class Said:
    """A verdict that comes after it was looked for so many times."""

    told: Verdict
    due: int = 0

    @property
    def verdict(self) -> Verdict | None:
        self.due -= 1
        return self.told if self.due < 0 else None

    def wait(self) -> Verdict:
        return self.told


@dataclass(slots=True, eq=False)
class ScriptedJudge:
    """Judges by words.

    Args:
        unsafe: what they are.
        silent: texts with these have no verdict.
        due: by the number of the question, how often its verdict is looked for in vain.
        asked: gets question, text before, and text of each.
        said: gets what becomes of each.
    """

    unsafe: Iterable[str] = ("bomb",)
    silent: Iterable[str] = ()
    due: Callable[[int], int] = lambda _: 0
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    def ask(self, question: str, before: str, text: str, wait_s: float) -> Said:
        self.asked.append((question, before, text))
        assert wait_s == 10
        told: Verdict = "unsafe" if any(each in text for each in self.unsafe) else "safe"
        if any(each in text for each in self.silent):
            told = "none"
        self.said.append(Said(told, self.due(len(self.asked))))
        return self.said[-1]


def guarded_gate(judge: ScriptedJudge, rules: str = "") -> Gate:
    """Return a gate with a guard at work, and no rules but those that are given."""
    return replace(gate_of_toml(GOOD + rules, "gate"), judge=judge)
