"""Document: where the references of a JSON schema lead."""

from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from localspec.grammar.keywords import schema_error

_OLDER = {"prefixItems": "items", "items": "additionalItems", "dependentSchemas": "dependencies"}
"""What stands for a keyword in older drafts."""


class Document:
    """A JSON schema whose parts are known by their JSON pointers; the whole is "".

    Args:
        schema: as `json.loads` gives it.
    """

    def __init__(self, schema: object) -> None:
        self._schema = schema

    def at(self, pointer: str) -> Any:
        """Return the part that a pointer leads to.

        Raises:
            LookupError: there is none.
        """
        found: Any = self._schema
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal():
                found = found[int(name)]
            elif isinstance(found, dict):
                found = found[name if name in found else _OLDER.get(name, name)]
            else:
                raise LookupError
        return found

    def target(self, reference: object, path: str) -> str:
        """Return the pointer to what a `$ref` leads to.

        Args:
            reference: its value.
            path: where it stands.

        Raises:
            UsageError: it leads out of the schema, or nowhere.
        """
        shown = f"$ref {str(reference)[:80]!r}"
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise schema_error(
                path, f"{shown} points out of the schema, or to a name: write it as #/$defs/name"
            )
        if self._has_address(path):
            raise schema_error(path, f"{shown} is inside a part with its own $id: remove that $id")
        pointer = unquote(reference[1:])
        try:
            self.at(pointer)
        except LookupError:
            raise schema_error(path, f"{shown} points to nothing") from None
        return pointer

    def _has_address(self, path: str) -> bool:
        """Say whether references at a place are relative to a part instead of the whole."""
        part: Any = None
        while path:
            with suppress(LookupError):
                part = self.at(path)
            if isinstance(part, dict) and isinstance(part.get("$id"), str):
                return True
            path = path.rpartition("/")[0]
        return False
