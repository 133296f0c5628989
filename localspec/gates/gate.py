"""Gate: rules and what is done about what they find, from a name or a file of TOML."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, get_args

import msgspec

from localspec.errors import UsageError
from localspec.gates.patterns import RuleSet, require_longest
from localspec.gates.rules import GROUPS, OWN, RULES, GateRule
from localspec.gates.text_gate import Action, TextGate
from localspec.storage.toml import brief, convert, key_error, parse_toml

USUAL = "usual"
_WHOLE = "A-Za-z0-9_"
_Words = Annotated[str, msgspec.Meta(pattern=r"\S")]


class _Pattern(msgspec.Struct, forbid_unknown_fields=True):
    """A rule of the user's own; `whole` keeps it from matching inside a longer word."""

    name: _Words
    pattern: _Words
    action: Action | None = None
    whole: bool = True


class _GateFile(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of rules holds: groups or names of rules, and what is done by group, by rule, and by pattern."""

    use: tuple[str, ...] = GROUPS
    action: Action = "mask"
    actions: dict[str, Any] = {}
    pattern: tuple[_Pattern, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """A set of rules, and what is done about what each of them finds.

    Args:
        rules: what it looks for.
        actions: by the names of rules.
    """

    rules: RuleSet
    actions: Mapping[str, Action]

    def text(self) -> TextGate:
        """Return what reads a text; see `TextGate`."""
        return TextGate(self.rules, self.actions)

    def cleaned(self, text: str, counts: Counter[tuple[str, str]] | None = None) -> str:
        """Return a whole text, masked; `stop` masks as well, and what comes behind it stays.

        Args:
            text: any.
            counts: gets how often each rule matched.
        """
        reader = self._whole()
        visible = "".join(each.text for each in (*reader.feed(text), *reader.flush()))
        if counts is not None:
            counts.update(reader.counts)
        return visible

    def hidden(self, text: str) -> list[tuple[int, int]]:
        """Return the stretches of a text that `cleaned` masks: first character, and the one behind the last."""
        reader, at = self._whole(), 0
        stretches = list[tuple[int, int]]()
        for each in (*reader.feed(text), *reader.flush()):
            if each.hidden:
                stretches.append((at, at + each.taken))
            at += each.taken
        return stretches

    def _whole(self) -> TextGate:
        masking = {name: "mask" if a == "stop" else a for name, a in self.actions.items()}
        return replace(self, actions=masking).text()


@cache
def usual_gate() -> Gate:
    """Return the gate that masks whatever a rule of localspec finds."""
    return _masking(RULES)


@cache
def secrets_gate() -> Gate:
    """Return the gate that masks keys, tokens and passwords, and lets addresses and numbers through."""
    return _masking([each for each in RULES if each.group == "secrets"])


def _masking(rules: Iterable[GateRule]) -> Gate:
    rule_set = RuleSet(rules)
    return Gate(rule_set, {each.rule.name: "mask" for each in rule_set.rules})


def gate_of_toml(text: str, source: str) -> Gate:
    """Return the gate that a file describes, see `docs/gates.md`.

    Args:
        text: TOML.
        source: what messages call it.

    Raises:
        UsageError: it is no TOML, or has an unknown key, name or value.
    """
    file = convert(parse_toml(text, source), _GateFile, source)
    known = {*GROUPS, *(each.name for each in RULES)}
    for name in (*file.use, *file.actions):
        if name not in known:
            raise UsageError(
                f"{source}: {name[:40]!r} is not a rule: use {', '.join(sorted(known))}"
            )
    for name, action in file.actions.items():
        if action not in get_args(Action):
            choices = ", ".join(sorted(get_args(Action)))
            raise key_error(source, f"is {brief(action)}: choose one of {choices}", "actions", name)
    rules = [each for each in RULES if {each.name, each.group} & {*file.use}]
    # A rule's own name says more than its group.
    actions = {
        each.name: file.actions.get(each.name, file.actions.get(each.group, file.action))
        for each in rules
    }
    for own in file.pattern:
        try:
            require_longest(own.pattern)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None
        around, name = _WHOLE * own.whole, own.name.strip()
        if name in {each.name for each in RULES}:
            raise UsageError(
                f"{source}: {name!r} is a rule of localspec's: give your pattern another name"
            )
        rules.append(GateRule(name, OWN, own.pattern, before=around, after=around))
        actions[name] = own.action or file.action
    return Gate(RuleSet(rules), actions)
