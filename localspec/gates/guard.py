"""Guard: a model that judges the sentences of an answer, and what is done about those that it finds unsafe. Knows no model."""

from dataclasses import dataclass
from typing import Literal, Protocol

from localspec.gates.text_gate import Action

Verdict = Literal["safe", "unsafe", "none"]
"""`none`: the guard was late, died, or said something else."""
Fails = Literal["closed", "open"]
GUARD, NO_VERDICT = "guard", "no verdict of the guard"
"""What people read where a sentence was masked, and in counts, in the place of a rule's name."""


@dataclass(frozen=True, slots=True)
class GuardRules:
    """What is judged, by what, and what comes of it.

    Args:
        model: name or file of the guard model.
        action: what is done about a sentence that is unsafe.
        fails: what is done about one without a verdict: `closed` as if it were unsafe, `open` lets it through.
        wait_s: seconds that a sentence waits for its verdict, from when it was asked for or the guard last answered.
    """

    model: str
    action: Action = "mask"
    fails: Fails = "closed"
    wait_s: float = 10.0


class Judgement(Protocol):
    """What becomes of a sentence that a guard was asked about."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None while it may still come in time. Once there is one, it stays."""
        ...

    def wait(self) -> Verdict:
        """Return the verdict as soon as it is there, `none` if it does not come in time."""
        ...


class Judge(Protocol):
    """A guard at work; any thread may ask it."""

    def ask(self, question: str, before: str, text: str, wait_s: float) -> Judgement:
        """Have a sentence judged; returns at once.

        Args:
            question: what the answer answers.
            before: of the answer, what stands before the sentence and may be seen.
            text: the sentence.
            wait_s: as for `GuardRules`.
        """
        ...
