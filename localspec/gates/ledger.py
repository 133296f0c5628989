"""Ledger: what belongs to stretches of a text, such as its tokens, leaves once those are decided. See `TextGate`."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from localspec.gates.text_gate import Stretch

Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True)
class Decided(Generic[Unit]):
    """A unit of a text.

    Args:
        unit: what it is.
        text: what passes of it; a mask passes with the first character that it stands for.
        hidden: whether any of it is masked.
    """

    unit: Unit
    text: str = ""
    hidden: bool = False


class Ledger(Generic[Unit]):
    """Units in the order of their text. One without characters, a part of one, shares the fate of the next that has some."""

    def __init__(self) -> None:
        self._waiting = deque[tuple[Unit, int]]()
        self._chars = deque[tuple[str, bool]]()  # decided, each with whether it is hidden

    def add(self, unit: Unit, chars: int) -> None:
        """Add a unit that stands for so many characters."""
        self._waiting.append((unit, chars))

    def decide(self, passed: Iterable[Stretch]) -> list[Decided[Unit]]:
        """Return the units whose last character was decided now."""
        for each in passed:
            parts = [each.text, *[""] * (each.taken - 1)] if each.hidden else each.text
            self._chars += ((part, each.hidden) for part in parts)
        done: list[Decided[Unit]] = []
        while (size := next((chars for _, chars in self._waiting if chars), 0)) <= len(self._chars):
            if not size:
                break
            pieces, flags = zip(*(self._chars.popleft() for _ in range(size)), strict=True)
            while not self._waiting[0][1]:
                done.append(Decided(self._waiting.popleft()[0], hidden=any(flags)))
            done.append(Decided(self._waiting.popleft()[0], "".join(pieces), any(flags)))
        return done

    def flush(self) -> list[Decided[Unit]]:
        """Return the units that are left at the end, which have no characters."""
        left = [Decided(unit) for unit, _ in self._waiting]
        self._waiting.clear()
        return left
