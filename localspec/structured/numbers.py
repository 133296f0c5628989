"""Numbers within bounds, digit by digit. Bounds are kept exactly, in what they allow as in what they forbid."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_DIGITS = 15
"""Most digits of a whole number without bounds: as many as a double keeps."""
_PLACES = 6
"""Most digits behind the point of a number with bounds: it is the same number as a double."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where to where; None is open. `above` and `below` leave the bound itself out."""

    low: Decimal | None = None
    high: Decimal | None = None
    above: bool = False
    below: bool = False

    def mirrored(self) -> "Bounds":
        """Return the bounds of the numbers with the other sign."""
        low, high = (None if each is None else -each for each in (self.high, self.low))
        return Bounds(low, high, self.below, self.above)

    def positive(self) -> "Bounds | None":
        """Return the part from 0 on; None where there is none."""
        if self.high is not None and (self.high < 0 or (self.high == 0 and self.below)):
            return None
        if self.low is None or self.low < 0:
            return Bounds(Decimal(0), self.high, above=False, below=self.below)
        return self

    def whole(self) -> tuple[int | None, int | None]:
        """Return the first and the last whole number."""
        low = high = None
        if self.low is not None:
            low = int(self.low.to_integral_value(ROUND_CEILING))
            low += self.above and low == self.low
        if self.high is not None:
            high = int(self.high.to_integral_value(ROUND_FLOOR))
            high -= self.below and high == self.high
        return low, high


def integer_alternatives(bounds: Bounds) -> list[str]:
    """Return what whole numbers within bounds may look like; nothing where there are none."""
    low, high = bounds.whole()
    found: list[str] = []
    if low is None or low < 0:
        start = 1 if high is None or high >= 0 else -high
        found += [f'"-" ({each})' for each in _whole(start, None if low is None else -low)]
    if high is None or high >= 0:
        found += _whole(max(low or 0, 0), high)
    return found


def number_alternatives(bounds: Bounds) -> list[str]:
    """Return what numbers within bounds may look like; exponents only where there are no bounds."""
    if bounds.low is None and bounds.high is None:
        whole = f'("0" | [1-9] [0-9]{{0,{_DIGITS - 1}}})'
        return [f'"-"? {whole} ("." [0-9]{{1,{_DIGITS}}})? ([eE] [-+]? [0-9]{{1,2}})?']
    found = []
    negative, positive = bounds.mirrored().positive(), bounds.positive()
    if negative is not None:
        found += [f'"-" ({each})' for each in _decimals(negative)]
    if positive is not None:
        found += _decimals(positive)
    return found


def _decimals(bounds: Bounds) -> list[str]:
    """Return the numbers from 0 on within bounds."""
    assert bounds.low is not None, "the part from 0 on has a beginning"  # noqa: S101
    low, low_places = _split(bounds.low)
    any_places = f'("." [0-9]{{1,{_PLACES}}})?'
    if bounds.high is None:
        found = _joined(low, _at_least(low_places, bounds.above))
        return found + [f"({each}) {any_places}" for each in _whole(low + 1, None)]
    high, high_places = _split(bounds.high)
    if low == high:
        return _joined(low, _between(low_places, high_places, bounds.above, bounds.below))
    found = _joined(low, _at_least(low_places, bounds.above))
    found += [f"({each}) {any_places}" for each in _whole(low + 1, high - 1)]
    return found + _joined(high, _at_most(high_places, bounds.below))


def _split(value: Decimal) -> tuple[int, str]:
    """Return the whole part and the digits behind the point, without zeros at the end."""
    whole, _, places = f"{value:f}".partition(".")
    return int(whole), places.rstrip("0")


def _joined(whole: int, fractions: list[str]) -> list[str]:
    return [f'"{whole}" {each}'.strip() for each in fractions]


def _at_least(places: str, above: bool) -> list[str]:
    if not places:
        return (
            [f'"." [0-9]{{0,{_PLACES - 1}}} [1-9]'] if above else [f'("." [0-9]{{1,{_PLACES}}})?']
        )
    return [f'"." {each}' for each in _tail_at_least(places, above)]


def _tail_at_least(places: str, above: bool) -> list[str]:
    if not places:
        return ["[0-9]{0,5} [1-9]" if above else "[0-9]{0,5}"]
    found = [f'"{places[0]}" {each}' for each in _tail_at_least(places[1:], above)]
    if places[0] < "9":
        found.append(f"[{int(places[0]) + 1}-9] [0-9]{{0,5}}")
    return found


def _at_most(places: str, below: bool) -> list[str]:
    if not places:
        return [] if below else ['(".0")?']
    return ["", *(f'"." {each}' for each in _tail_at_most(places, below))]


def _tail_at_most(places: str, below: bool) -> list[str]:
    first, rest = places[0], places[1:]
    found = [f"[0-{int(first) - 1}] [0-9]{{0,5}}"] if first > "0" else []
    if rest:
        found.append(f'"{first}"')  # fewer digits are less
        return found + [f'"{first}" {each}' for each in _tail_at_most(rest, below)]
    return found if below else [*found, f'"{first}" "0"{{0,3}}']


def _between(low: str, high: str, above: bool, below: bool) -> list[str]:
    """Return fractions of the same whole part, from the digits `low` to the digits `high`."""
    if low == high:
        if above or below:
            return []
        return [f'".{low}"'] if low else ['(".0")?']
    if not low:
        upper = _at_most(high, below)
        return (
            upper
            if not above
            else [f'"." {each}' for each in _tail_between("", high, above, below)]
        )
    return [f'"." {each}' for each in _tail_between(low, high, above, below)]


def _tail_between(low: str, high: str, above: bool, below: bool) -> list[str]:
    """Return digits that are more than `low` and less than `high`, as far as these are left out."""
    low_digit, high_digit = low[:1] or "0", high[:1] or "0"
    if low_digit == high_digit:
        if not high[1:]:
            return [] if above or below or low[1:] else [f'"{low_digit}"']
        return [f'"{low_digit}" {each}' for each in _tail_between(low[1:], high[1:], above, below)]
    found = [f'"{low_digit}" {each}' for each in _tail_at_least(low[1:], above)]
    first, last = int(low_digit) + 1, int(high_digit) - 1
    if first <= last:
        found.append(f"[{first}-{last}] [0-9]{{0,5}}")
    if high[1:]:
        found.append(f'"{high_digit}"')
        return found + [f'"{high_digit}" {each}' for each in _tail_at_most(high[1:], below)]
    return found if below else [*found, f'"{high_digit}" "0"{{0,3}}']


def _whole(low: int, high: int | None) -> list[str]:
    """Return the whole numbers from `low`, which is not negative, to `high`."""
    if high is None:
        digits = len(str(low))
        longer = f"[1-9] [0-9]{{{digits},{max(_DIGITS, digits + 1) - 1}}}"
        return [*_of_length(str(low), "9" * digits), longer]
    found = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        if first <= last:
            found += _of_length(str(first), str(last))
    return found


def _of_length(low: str, high: str) -> list[str]:
    """Return the digits from `low` to `high`, which are as many."""
    if not low:
        return [""]
    rest = len(low) - 1
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        return [f"[{low[0]}-{high[0]}]" + (f" [0-9]{{{rest}}}" if rest else "")]
    if low[0] == high[0]:
        return [f'"{low[0]}" {each}'.strip() for each in _of_length(low[1:], high[1:])]
    found = [f'"{low[0]}" {each}'.strip() for each in _of_length(low[1:], "9" * rest)]
    first, last = int(low[0]) + 1, int(high[0]) - 1
    if first <= last:
        found.append(f"[{first}-{last}]" + (f" [0-9]{{{rest}}}" if rest else ""))
    return found + [f'"{high[0]}" {each}'.strip() for each in _of_length("0" * rest, high[1:])]
