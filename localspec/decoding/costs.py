"""PassCosts: what one pass of a model takes, by its width. RunningCosts: as of now."""

from bisect import bisect_left
from dataclasses import dataclass

from localspec.decoding.drafters.draft_length import best_length

WORTH_TRYING = 1.1
"""Tokens that a plain round's time has to promise: chances and costs are estimates."""
DOUBT = 1.1
"""How far off a speed-up may be that is foreseen, or was measured beside other programs."""
AT_BEST = 0.96
"""Chance of a drafted token on the text that a draft model knows best: edits and quotes of a real pair."""
_BETTER = 0.1
"""By how much a text may suit heads better than the kind that suits them best."""
_NEARLY = 0.95
_MEMORY = 12
_OUTLIER = 1.5
_FORGETS = 320
"""Plain passes in a row after which what wide passes showed counts half."""
_RETURN_PASSES = 4
"""Wide passes assumed beforehand without a dearer pass behind them, so that one disturbed pass says little."""
_STEADY = 16
"""Passes behind the last plain one that followed another, after which what is slow may be the machine instead."""
_RETURN_NOTED = 0.1
"""Share of a plain pass below which what it takes longer behind a wide one is taken for noise."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Seconds of one pass by its width in tokens, as measured: no order among them is assumed.

    Args:
        widths: measured widths, ascending, from 1.
        seconds: what a pass of each took, as many as `widths`.
    """

    widths: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.seconds) or not self.widths or self.widths[0] != 1:
            raise ValueError(f"{len(self.seconds)} costs for the widths {self.widths}: from 1 on")
        if list(self.widths) != sorted(set(self.widths)) or min(self.seconds) <= 0:
            raise ValueError("widths ascend, and every pass takes time")

    def of(self, width: float) -> float:
        """Return the seconds of a pass; between two measured widths, on the line that joins them.

        Beyond the widest, each token costs what it costs there on average.
        """
        at = bisect_left(self.widths, width)
        if at == len(self.widths):
            return self.seconds[-1] * width / self.widths[-1]
        if self.widths[at] == width:
            return self.seconds[at]
        narrow, wide = self.widths[at - 1], self.widths[at]
        share = (width - narrow) / (wide - narrow)
        return self.seconds[at - 1] * (1 - share) + self.seconds[at] * share


@dataclass(frozen=True, slots=True)
class PairCosts:
    """What passes of a pair of models take on this machine.

    Args:
        target: passes of the target, with the logits of every token, as verification asks for them.
        draft_model: passes of the draft model, with the logits of the last token; None without one.
        sure: whether both were measured while the machine was quiet.
        in_one_pass: whether one pass gives a whole draft.
        at_best: chance of a drafted token on the text that the draft model knows best.
    """

    target: PassCosts
    draft_model: PassCosts | None = None
    sure: bool = True
    in_one_pass: bool = False
    at_best: float = AT_BEST

    def passes(self, length: int) -> int:
        """Return how many passes of the draft model a draft of so many tokens takes."""
        return min(length, 1) if self.in_one_pass else length


class RunningCosts:
    """What a pass takes now: depth, heat and neighbours change it, mostly by a common factor.

    A pass of one token waits for memory, a wide one for arithmetic: what slows one down need not
    slow the other, so that wide passes have a factor of their own beside the common one.

    Args:
        table: measured at first, at a shallow depth.
    """

    def __init__(self, table: PassCosts) -> None:
        self.table = table
        self._factor = self._wide = 1.0
        self._passes = self._wide_passes = self._plain_passes = 0
        self._seconds: list[float] = []  # of the first widths, by the table
        self._was_wide = False
        self._return, self._returns = 0.0, 0
        self._since_steady = _STEADY + 1

    def check(self) -> None:
        """Let the next passes say more than usual: a table may have been measured on another day."""
        self._passes = self._wide_passes = 0

    def of(self, width: int) -> float:
        """Return the seconds of a pass of this width, as of now."""
        return self.table.of(width) * (self._factor * self._wide if width > 1 else self._factor)

    @property
    def return_s(self) -> float:
        """Extra seconds of a narrow pass after a wide one: the mean, 0 where little."""
        share = self._return if self._return > _RETURN_NOTED else 0.0
        return share * self.of(1)

    def upto(self, width: int, offset: int = 0, token_s: float = 0.0) -> list[float]:
        """Return the seconds of passes of 1 to `width` tokens, as of now, the wide ones with the return from them.

        Args:
            width: of the widest.
            offset: tokens that each pass has besides.
            token_s: seconds that each of them takes besides.
        """
        table, factor, widest = self._seconds, self._factor * self._wide, offset + width
        if widest > len(table):
            table += map(self.table.of, range(len(table) + 1, widest + 1))
        return_s = self.return_s
        seconds = [
            each * factor + token_s * own + return_s
            for own, each in enumerate(table[offset:widest], start=1)
        ]
        if not offset:
            seconds[0] = table[0] * self._factor + token_s
        return seconds

    def add(self, width: int, seconds: float) -> None:
        """Take in what a pass took; one that was disturbed counts no more than half as long again."""
        if seconds <= 0:
            return
        self._since_steady = 0 if width == 1 and not self._was_wide else self._since_steady + 1
        if self._was_wide and (width > 1 or self._since_steady <= _STEADY):
            self._returns += 1
            longer = min(max(seconds / self.of(1) - 1, -1.0), 1.0) if width == 1 else 0.0
            memory = min(_RETURN_PASSES + self._returns, _MEMORY)
            self._return += (longer - self._return) / memory
        if width == 1 and self._was_wide:
            seconds -= self.return_s
        self._was_wide = width > 1
        ratio = min(max(seconds / self.of(width), 1 / _OUTLIER), _OUTLIER)
        if width > 1:
            self._plain_passes = 0
            self._wide_passes += 1
            wide = self._wide * ratio ** (1 / min(1 + self._wide_passes, _MEMORY))
            self._wide = min(max(wide, 0.25), 4.0)
            self._factor *= ratio ** (1 / _MEMORY)
            return
        self._passes += 1
        self._factor *= ratio ** (1 / min(1 + self._passes, _MEMORY))
        self._plain_passes += 1
        if self._plain_passes % _FORGETS == 0:
            self._wide **= 0.5  # nothing would correct these while no wide pass is made
            self._return *= 0.5


def shared_s(
    costs: PassCosts, others: int, most: int, token_s: float = 0.0, drafting: float = 1.0
) -> list[float]:
    """Return what passes of 1 to `most` tokens cost one sequence beside others.

    A plain pass costs its share of the pass of all. What is wider is evaluated behind that, in a pass of all that draft,
    each as far: they share its cost.

    Args:
        costs: of passes.
        others: how many.
        most: tokens of the widest.
        token_s: seconds that each of them takes besides.
        drafting: how many are expected to draft, this one among them.
    """
    widths = range(1, most + 1)
    if not others:
        return [costs.of(width) + token_s * width for width in widths]
    share_s = costs.of(others + 1) / (others + 1)
    own_s = [0.0, *(costs.of(drafting * width) / drafting for width in widths[:-1])]
    return [share_s + each + token_s * width for width, each in zip(widths, own_s, strict=True)]


def could_pay(costs: PassCosts, count: int, longest: int) -> bool:
    """Return whether one of `count` sequences could gain by a draft of which every token is accepted, alone or with all."""
    ways = (shared_s(costs, count - 1, longest + 1, drafting=drafting) for drafting in (1, count))
    sure = [1.0] * longest
    return any(best_length(sure, each)[1] > WORTH_TRYING / each[0] for each in ways)


def draft_model_could_win(
    costs: PairCosts, longest: int, count: int = 1, by: float = WORTH_TRYING
) -> bool:
    """Return whether drafts of up to `longest` tokens by the draft model could ever pay.

    Asked before it is loaded: of a draft model that would have to be right throughout, more is lost on the way to such
    a text than earned there.

    Args:
        costs: of the pair's passes.
        longest: most tokens of a draft.
        count: how many sequences share the passes, all of them drafting.
        by: the speed-up that they have to reach on text that a draft model knows best.
    """
    return costs.draft_model is not None and best_yield(costs, longest, count) > by


def best_yield(costs: PairCosts, longest: int, count: int = 1) -> float:
    """Return the tokens that a plain round's time yields on text that the draft model knows best; see `draft_model_could_win`."""
    assert costs.draft_model is not None, "it drafts"  # noqa: S101
    step_s = costs.draft_model.of(count)
    round_s = [
        costs.target.of(count * (length + 1)) + costs.passes(length) * step_s
        for length in range(longest + 1)
    ]
    return best_length([costs.at_best] * longest, round_s)[1] * round_s[0]


def at_best_of(accepted: float | None) -> float:
    """Return the chance of a drafted token on the text that heads know best.

    Args:
        accepted: the share that was measured in the kind that suits them best; None where none was.
    """
    return AT_BEST if accepted is None else min(AT_BEST, accepted + _BETTER)


def best_count(costs: PassCosts, most: int) -> int:
    """Return the least number of sequences that gives nearly the most tokens per second.

    Beyond the knee of the curve, more of them take memory and make every reply slower, for next to nothing.

    Args:
        costs: of passes by their width.
        most: that there may be, 1 or more; of those, only widths that were measured are considered.
    """
    rates = {count: count / costs.of(count) for count in costs.widths if count <= most}
    return next(n for n, rate in rates.items() if rate >= _NEARLY * max(rates.values()))


def window_length(target: PassCosts, draft_model: PassCosts, n_ctx: int) -> int:
    """Return how much of a long text a draft model is to start with.

    As much as it evaluates in the time of two plain steps; at least 32 tokens, with which it can
    show what it is good for.

    Args:
        target: costs of the target's passes.
        draft_model: costs of the draft model's.
        n_ctx: the draft model's context.
    """
    token_s = draft_model.seconds[-1] / draft_model.widths[-1]
    return min(n_ctx, max(32, int(2 * target.of(1) / token_s)))
