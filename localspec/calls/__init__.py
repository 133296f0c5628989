"""Tool and CallFormat: what a model may call, and how it writes a call. Values; they know no template and no grammar."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.display import printable_line
from localspec.errors import UsageError

ID_SLOT, INDEX_SLOT, NAME_SLOT = "\ue000", "\ue001", "\ue002"
"""Characters that stand in a text of a format for the id of the call, its number, and its name once more.

They are private to Unicode, so no template writes them.
"""
_CHOICES = ("enum", "anyOf", "oneOf")
_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    Args:
        name: of the function: letters, digits, `_`, `-` and `.`.
        parameters: JSON schema of its arguments, an object.
        description: what it does.
        strict: whether a schema that a call cannot be held to is an error; else its parts may be anything.

    Raises:
        UsageError: the name has other characters, or is too long.
    """

    name: str
    parameters: Mapping[str, Any]
    description: str = ""
    strict: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"a tool has the name {printable_line(self.name)[:40]!r}: "
                "use letters, digits, _ - and . only, at most 128"
            )

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return a call's arguments, without those that `without_nulls` leaves out.

        Args:
            arguments: as the model wrote them; empty counts as none.

        Raises:
            UsageError: they are not a JSON object.
        """
        try:
            values = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise UsageError(
                f"the arguments of {self.name} are not JSON: write one object"
            ) from None
        if not isinstance(values, dict):
            raise UsageError(f"the arguments of {self.name} must be a JSON object")
        return self.without_nulls(values)

    def without_nulls(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments without those that are null where they are optional and their schemas have no null.

        Models often write null for what they leave out.
        """
        properties, required = (self.parameters.get(e) for e in ("properties", "required"))
        schemas = properties if isinstance(properties, Mapping) else {}
        needed = required if isinstance(required, list) else ()
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name in needed or _has_null(schemas.get(name))
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as OpenAI's chat bodies and chat templates have it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


def _has_null(schema: object) -> bool:
    """Return whether a schema allows null, or may do so by what is not looked at."""
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    if kinds is not None:
        return "null" in (kinds if isinstance(kinds, list) else [kinds])
    choices = [each for name in _CHOICES if isinstance(each := schema.get(name), list)]
    return not choices or any(
        each is None or (isinstance(each, Mapping) and _has_null(each))
        for choice in choices
        for each in choice
    )


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The texts around a value, the first of them behind its key."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """Arguments that are written one by one instead of as a JSON object.

    Args:
        first: text between the name of the function and the first key.
        string: around a text, which stands there as it is.
        other: around other values, which are JSON.
        next: text between the end of a value and the next key.
        none: text behind the name where there are no arguments; None where that is not known.
        quoted: texts are in quotes, so that they need no form of their own.
    """

    first: str
    string: ValueForm
    other: ValueForm
    next: str
    none: str | None = None
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls: begin, name, then, arguments, (next, name, then, arguments)*, end.

    Args:
        begin: text before the name of the first call; white space that it begins with may be missing.
        then: text between a name and the JSON object of its arguments; unused where they are tagged.
        end: text behind the arguments of the last call.
        next: text between the arguments of a call and the name of the next; None where there is only one.
        trigger: beginning of `begin`, such white space aside, that no ordinary answer has.
        tagged: how arguments are written that are no JSON object.
        also: what may stand in the place of `then`.
    """

    begin: str
    then: str
    end: str
    next: str | None
    trigger: str
    tagged: TaggedArguments | None = None
    also: tuple[str, ...] = ()
