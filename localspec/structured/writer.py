"""Writer: what objects and arrays need to write what they hold."""

from collections.abc import Callable
from dataclasses import dataclass

from localspec.structured.rules import Rules


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """What objects and arrays need to write what they hold.

    Args:
        rules: gets their rules.
        space: name of the rule for white space, which may be empty.
        anything: returns the name of the rule for any JSON.
        rule: returns the name of the rule for a schema, which stands at a pointer.
    """

    rules: Rules
    space: str
    anything: Callable[[], str]
    rule: Callable[[object, str], str]
