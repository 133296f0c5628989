"""Ledger: what belongs to stretches of a text, such as its tokens, leaves once those are decided. See `TextGate`."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from localspec.gates.text_gate import Stretch

Unit = TypeVar("Unit")


@dataclass(slots=True)
class Decided(Generic[Unit]):
    """A unit of a text.

    Args:
        unit: what it is.
        chars: of the text that are its own and are not decided yet.
        text: what may be seen of it.
        hidden: whether any of it must not be seen.
    """

    unit: Unit
    chars: int
    text: str = ""
    hidden: bool = False


class Ledger(Generic[Unit]):
    """Units in the order of their text. One without characters, a part of one, shares the fate of the next that has some."""

    def __init__(self) -> None:
        self._waiting = deque[Decided[Unit]]()
        self._empty: list[Decided[Unit]] = []

    def add(self, unit: Unit, chars: int) -> None:
        """Add a unit that stands for so many characters."""
        self._waiting.append(Decided(unit, chars))

    def decide(self, passed: Iterable[Stretch]) -> list[Decided[Unit]]:
        """Return the units whose last character was decided now."""
        done: list[Decided[Unit]] = []
        for each in passed:
            left, at = each.taken, 0
            while left and self._waiting:
                unit = self._waiting[0]
                size = min(unit.chars, left)
                if not unit.chars:
                    self._empty.append(self._waiting.popleft())
                    continue
                unit.hidden = unit.hidden or each.hidden
                # What is seen instead of a stretch is seen where that begins.
                unit.text += each.text[at : at + size] if not each.hidden else each.text[at:]
                at = at + size if not each.hidden else len(each.text)
                unit.chars -= size
                left -= size
                if not unit.chars:
                    done += self._with_empty(self._waiting.popleft())
        return done

    def flush(self) -> list[Decided[Unit]]:
        """Return the units that are left at the end, which have no characters."""
        left = [*self._empty, *self._waiting]
        self._empty.clear()
        self._waiting.clear()
        return left

    def _with_empty(self, unit: Decided[Unit]) -> list[Decided[Unit]]:
        for each in self._empty:
            each.hidden = unit.hidden
        units, self._empty = [*self._empty, unit], []
        return units
