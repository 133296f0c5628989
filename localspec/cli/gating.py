"""`--gate`: what a verb lets through of the answers that it shows or writes, and how often it did not."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.chat.events import Event, Reply
from localspec.chat.request import Request
from localspec.cli.structure import read_text

if TYPE_CHECKING:
    from localspec.cli.hands import Stream
    from localspec.gates.gate import Gate
    from localspec.gates.text_gate import Finding

USUAL, OFF = "usual", "off"
_HELP = (
    "Mask secrets and personal data in answers. usual masks keys, passwords, addresses and numbers; a FILE has rules: "
    "docs/gates.md. Default: off."
)


def gate_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--gate` to a command."""
    return click.option("--gate", default=OFF, metavar="usual|off|FILE", help=_HELP)(command)


def gate_of(flags: Mapping[str, Any]) -> "Gate | None":
    """Return the gate that flags or settings name; None where nothing is masked.

    Raises:
        UsageError: it is a file that cannot be read, or says what is not known.
    """
    return named_gate(flags["gate"], "--gate")


def named_gate(name: str | None, option: str) -> "Gate | None":
    """Return the gate that an option names; see `gate_of`."""
    if name in {None, OFF}:
        return None
    from localspec.gates.gate import gate_of_toml, usual_gate  # noqa: PLC0415 - few have one

    assert name is not None  # noqa: S101 - it is not off
    if name == USUAL:
        return usual_gate()
    return gate_of_toml(read_text(Path(name), option), f"{option} {name}")


class Gating:
    """The replies of a verb, as they may be seen.

    Args:
        gate: what must not be; None lets everything through.
        asks: whether somebody is there who can say what may be.
    """

    def __init__(self, gate: "Gate | None", *, asks: bool = False) -> None:
        self._gate = gate
        self._allows = _allows if asks else None
        self._counts: Counter[tuple[str, str]] = Counter()

    def events(self, stream: "Stream", asked: Request) -> Iterator[Event]:
        """Yield what may be seen of an answer; one that a rule stops ends soon."""
        if self._gate is None:
            yield from stream(asked, lambda: False)
            return
        from localspec.chat.gated import GatedReply, gated  # noqa: PLC0415 - likewise

        reply = GatedReply(self._gate, self._allows)
        try:
            yield from gated(stream(asked, lambda: reply.stopped), reply)
        finally:
            self._counts.update(reply.counts)

    def whole(self, reply: Reply) -> Reply:
        """Return what may be seen of a whole answer."""
        if self._gate is None:
            return reply
        from localspec.chat.gated import gated_reply  # noqa: PLC0415 - likewise

        return gated_reply(reply, self._gate, self._counts)

    def close(self) -> None:
        """Count what was found, where anything is recorded."""
        note_findings(self._counts)
        self._counts.clear()


def note_findings(counts: Mapping[tuple[str, str], int]) -> None:
    """Count what rules found for `stats`, where anything is recorded; nothing of it fails."""
    if counts:
        from localspec.launch.recording import note  # noqa: PLC0415 - mostly there is nothing

        note(counts)


def _allows(finding: "Finding") -> bool:
    """Ask a person whether something may be seen; what it is, the question does not say."""
    from localspec.cli.hands import typed_answer  # noqa: PLC0415 - few are asked

    sys.stdout.flush()
    try:
        answer = typed_answer(f"\nlocalspec: the answer has here: {finding.rule}. Show it? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}
