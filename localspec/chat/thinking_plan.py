"""ThinkingPlan: what `--think` comes to with a chat template. What the template knows is found by rendering it with its variables set one way and the other."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Variables = Mapping[str, object]

_SWITCHES = ("enable_thinking", "thinking", "reasoning")
_ON: Variables = {**dict.fromkeys(_SWITCHES, True), "thinking_mode": "enabled"}
_OFF: Variables = {**dict.fromkeys(_SWITCHES, False), "thinking_mode": "disabled"}
_EFFORTS, _NO_EFFORTS = ("reasoning_effort", "thinking_effort"), ("none", "no_think")
_BUDGET = "thinking_budget"
_LEVELS = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """How a reply is to think.

    Args:
        variables: for the template.
        budget: most tokens of thoughts; None lets them end by themselves.
        note: what the template does not know, a sentence without its subject; empty where it knows all.
    """

    variables: Variables = field(default_factory=dict)
    budget: int | None = None
    note: str = ""


def thinking_plan(
    think: str, source: str, render: Callable[[Variables], str | None], *, tagged: bool
) -> ThinkingPlan:
    """Return how a reply is to think.

    Args:
        think: as `ReplyOptions` has it.
        source: the chat template.
        render: returns the text of a short conversation under some variables; None where the template refuses them.
        tagged: whether the template has tags of thoughts that are known.
    """
    template = _Template(source, render)
    if not (tagged or template.switch or template.effort):
        return ThinkingPlan(note=f"knows no thinking, so think {think} changes nothing")
    budget = int(think) if think.isdecimal() else None
    if think == "off" or (budget == 0 and not tagged):
        return _without_thoughts(template, tagged=tagged)
    if think == "on":
        return ThinkingPlan(template.on)
    if budget is None:
        return _with_effort(template, think)
    variables = {**(template.on if budget else template.off or _ON)}
    if _BUDGET in source:
        variables[_BUDGET] = budget
    if not tagged:
        return ThinkingPlan(variables, note="has no tags of thoughts, so no budget ends them")
    return ThinkingPlan(variables, budget)


def _without_thoughts(template: "_Template", *, tagged: bool) -> ThinkingPlan:
    if template.off is not None:
        return ThinkingPlan(template.off)
    if tagged:
        note = "cannot switch thinking off, so thoughts are ended as they begin"
        return ThinkingPlan(_ON, 0, note)
    return ThinkingPlan(note="cannot switch thinking off")


def _with_effort(template: "_Template", level: str) -> ThinkingPlan:
    if not template.effort:
        return ThinkingPlan(template.on, note=f"knows no effort, so think {level} is think on")
    name, levels = template.effort
    if level in levels:
        return ThinkingPlan({**_ON, name: level})
    nearest = next((each for each in _LEVELS[_LEVELS.index(level) :] if each in levels), levels[-1])
    note = f"knows the efforts {' and '.join(levels)}, so think {level} is think {nearest}"
    return ThinkingPlan({**_ON, name: nearest}, note=note)


class _Template:
    """What a template knows.

    Attributes:
        switch: whether it can be switched on and off.
        effort: the variable of the effort, and the levels that it takes; None where there is none.
        on: variables with which it thinks.
        off: variables with which it does not; None where there are none.
    """

    def __init__(self, source: str, render: Callable[[Variables], str | None]) -> None:
        self._source, self._render = source, render
        self._text = render(_ON)
        self.effort = next(filter(None, map(self._levels_of, _EFFORTS)), None)
        self.off = next(filter(self._is_off, self._candidates()), None)
        self.switch = self.off is not None
        self.on = _ON
        if self.off is not None and self.effort and render(self.off) == self._text:
            name, levels = self.effort  # without an effort it does not think
            self.on = {**_ON, name: levels[-1]}

    def _levels_of(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        if not re.search(rf"\b{name}\b", self._source):
            return None
        texts = {level: self._render({**_ON, name: level}) for level in _LEVELS}
        levels = tuple(level for level, text in texts.items() if text is not None)
        changes = any(texts[level] != self._text for level in levels)
        return (name, levels) if changes else None

    def _candidates(self) -> list[Variables]:
        words = [each for each in _NO_EFFORTS if re.search(rf"['\"]{each}['\"]", self._source)]
        named = [each for each in _EFFORTS if each in self._source]
        budget: list[Variables] = [{**_ON, _BUDGET: 0}] if _BUDGET in self._source else []
        return [_OFF, *budget, *({**_ON, name: word} for name in named for word in words)]

    def _is_off(self, variables: Variables) -> bool:
        """Return whether a text is another than the one of thinking, with the effort where that is a variable of it."""
        text = self._render(variables)
        most = self._text
        if self.effort and self.effort[0] in variables:
            most = self._render({**_ON, self.effort[0]: self.effort[1][-1]})
        return text is not None and text != most
