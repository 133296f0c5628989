"""What a person at a terminal answers to the question of a call."""

from collections.abc import Callable

from localspec.toolbox.permissions import Decision


def decision(ask: Callable[[str], str], scope: str) -> Decision | None:
    """Return what a person answers; None where they stop. What is no answer is asked again.

    Args:
        ask: returns what is typed after a question; EOFError and KeyboardInterrupt stop.
        scope: what allowing it always would allow.
    """
    while True:
        try:
            typed = ask(f"allow? y once · a always ({scope}) · n no, then why and Enter > ").strip()
        except (EOFError, KeyboardInterrupt):
            return None
        word, _, reason = typed.partition(" ")
        match word.casefold().rstrip(",.:"):
            case "y" | "yes" if not reason:
                return Decision(allowed=True)
            case "a" | "always" if not reason:
                return Decision(allowed=True, always=True)
            case "n" | "no":
                return Decision(allowed=False, reason=reason.strip())
            case _:
                continue
