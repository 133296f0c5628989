"""Gate: rules and what is done about what they find, from a name or a file of TOML."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

from localspec.errors import UsageError
from localspec.gates.patterns import RuleSet, require_longest
from localspec.gates.rules import GROUPS, OWN, RULES, GateRule
from localspec.gates.text_gate import Action, TextGate

USUAL = "usual"
_KEYS = {"use", "action", "actions", "pattern"}
_GONE = {"guard", "guard_action", "guard_fails", "guard_wait_s"}
_PATTERN_KEYS = {"name", "pattern", "action", "whole"}
_WHOLE = "A-Za-z0-9_"


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """What must not be seen, and what is done about it.

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
        """Return a whole text as it may be seen; `stop` masks, and what comes behind it is seen.

        Args:
            text: any.
            counts: gets what was found.
        """
        reader = self._whole()
        seen = "".join(each.text for each in (*reader.feed(text), *reader.flush()))
        if counts is not None:
            counts.update(reader.counts)
        return seen

    def hidden(self, text: str) -> list[tuple[int, int]]:
        """Return the stretches of a text that `cleaned` masks: first character, and the one behind the last."""
        reader, at = self._whole(), 0
        found = list[tuple[int, int]]()
        for each in (*reader.feed(text), *reader.flush()):
            if each.hidden:
                found.append((at, at + each.taken))
            at += each.taken
        return found

    def _whole(self) -> TextGate:
        masking = {name: "mask" if a == "stop" else a for name, a in self.actions.items()}
        return replace(self, actions=masking).text()


@cache
def usual_gate() -> Gate:
    """Return the gate that masks whatever a rule of localspec finds."""
    return _gate(RULES, {each.name: "mask" for each in RULES})


@cache
def secrets_gate() -> Gate:
    """Return the gate that masks keys, tokens and passwords, and lets addresses and numbers through."""
    rules = [each for each in RULES if each.group == "secrets"]
    return _gate(rules, {each.name: "mask" for each in rules})


def gate_of_toml(text: str, source: str) -> Gate:
    """Return the gate that a file describes.

    Args:
        text: TOML: `use` has groups or names of rules, `action` is what is done, `actions` what is done for a group or a rule,
            and each `[[pattern]]` is a rule of one's own.
        source: what messages call it.

    Raises:
        UsageError: it is no TOML, or says what is not known.
    """
    try:
        return _read(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def _read(found: Mapping[str, Any]) -> Gate:
    _require_known(found, _KEYS)
    known = {*GROUPS, *(each.name for each in RULES)}
    use, usual = found.get("use", [*GROUPS]), _action("action", found.get("action", "mask"))
    if not isinstance(use, list) or not all(isinstance(each, str) for each in use):
        raise UsageError(f"use is {str(use)[:40]!r}: it takes a list of names")
    rules = [each for each in RULES if {each.name, each.group} & {*use}]
    actions: dict[str, Action] = {each.name: usual for each in rules}
    patterns = found.get("pattern", [])
    if not isinstance(patterns, list) or not all(isinstance(each, dict) for each in patterns):
        raise UsageError("write every pattern of your own under [[pattern]]")
    for each in patterns:
        rule = _own(each)
        rules.append(rule)
        actions[rule.name] = _action("action", each.get("action", usual))
    special = found.get("actions", {})
    if not isinstance(special, dict):
        raise UsageError('actions is no table: write it like [actions], and email = "note" below')
    for name in (*use, *special):
        if name not in known:
            raise UsageError(f"{name[:40]!r} is no rule: there are {', '.join(sorted(known))}")
    # A rule's own name says more than its group.
    for by_name in (False, True):
        for rule in rules:
            name = rule.name if by_name else rule.group
            if name in special:
                actions[rule.name] = _action(name, special[name])
    return _gate(rules, actions)


def _own(given: Mapping[str, Any]) -> GateRule:
    _require_known(given, _PATTERN_KEYS)
    name, pattern, whole = given.get("name"), given.get("pattern"), given.get("whole", True)
    if not (isinstance(name, str) and name.strip() and isinstance(pattern, str) and pattern):
        raise UsageError("a pattern has no name or no pattern: write both, as texts")
    if not isinstance(whole, bool):
        raise UsageError(f"whole of {name[:40]!r} is {str(whole)[:40]!r}: it takes true or false")
    require_longest(pattern)
    around = _WHOLE if whole else ""
    return GateRule(name.strip(), OWN, pattern, before=around, after=around)


def _require_known(given: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in given:
        if name in _GONE:
            raise UsageError(
                f"{name} is gone: gates have rules and no guard model; remove the line"
            )
        if name not in known:
            raise UsageError(f"{name[:40]!r} is not known: there are {', '.join(sorted(known))}")


def _action(name: str, value: object) -> Action:
    if value not in get_args(Action):
        raise UsageError(
            f"{name} is {str(value)[:40]!r}: choose one of {', '.join(get_args(Action))}"
        )
    return value  # type: ignore[return-value]  # it is one of them


def _gate(rules: Iterable[GateRule], actions: Mapping[str, Action]) -> Gate:
    return Gate(RuleSet(rules), actions)
