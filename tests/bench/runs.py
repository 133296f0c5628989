"""Made runs, with known times."""

from collections.abc import Sequence

from localspec.bench.trial import Arrival, Slot, Trial
from localspec.decoding.round import Draft, Round, Spent, Verdict


def a_round(
    drafted: int = 0,
    accepted: int = 0,
    *,
    verify_s: float = 0.1,
    draft_s: float = 0.0,
    draft_prefill_s: float = 0.0,
) -> Round:
    spent = Spent(draft_prefill_s, draft_s, verify_s, 0.0)
    draft = Draft((1,) * drafted, (), "lookup")
    return Round(draft, Verdict(accepted, 1), (1,) * (accepted + 1), spent)


def a_trial(
    mode: str = "off",
    *,
    wall_s: float = 1.0,
    n_tokens: int = 10,
    prompt: int = 0,
    repeat: int = 0,
    group: int = 0,
    tokens: Sequence[int] | None = None,
    first_s: float = 0.1,
    prefill_s: float = 0.0,
    rounds: Sequence[Round] = (),
) -> Trial:
    """Return a run whose tokens came at an even pace."""
    pace = (wall_s - first_s) / max(1, n_tokens - 1)
    return Trial(
        slot=Slot(prompt, 0.0, repeat, mode, group),
        tokens=tuple(range(n_tokens) if tokens is None else tokens),
        arrivals=tuple(Arrival(n + 1, first_s + n * pace) for n in range(n_tokens)),
        prefill_s=prefill_s,
        rounds=tuple(rounds),
        drafted=sum(each.drafted for each in rounds),
        accepted=sum(each.accepted for each in rounds),
    )


def pair(speed: float, mode: str = "auto", **how: int) -> list[Trial]:
    """Return a run of `off`, and one of another mode that is so many times as fast."""
    return [a_trial(**how), a_trial(mode, wall_s=1 / speed, first_s=0.1 / speed, **how)]  # type: ignore[arg-type]
