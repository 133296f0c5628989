"""What corpora record: values of JSON, as far as they are otherwise than usual."""

from typing import Any

import msgspec


def changed(value: Any, usual: Any) -> Any:
    """Return what an object has otherwise than the usual one; None where it lacks something."""
    if not isinstance(value, dict) or not isinstance(usual, dict):
        return value
    return {
        name: changed(value.get(name), usual.get(name))
        for name in (*value, *(usual.keys() - value.keys()))
        if value.get(name) != usual.get(name)
    }


def changed_fields(value: Any, usual: Any) -> Any:
    """Return the fields of a value of a class that are otherwise than the usual one's, as JSON has them; no `id`."""
    found, like = (msgspec.json.decode(msgspec.json.encode(each)) for each in (value, usual))
    found.pop("id", None)
    return changed(found, {name: each for name, each in like.items() if name != "id"})
