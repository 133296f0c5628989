"""Whether a value is valid under a schema, as the `jsonschema` package says, in the schema's own draft."""

import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.protocols import Validator


class Judge:
    """Judges values by one schema.

    Formats are asserted, as far as jsonschema can check them here: `jsonschema[format]` knows most. Multiples are
    counted in decimals, as JSON writes numbers: 0.3 is a multiple of 0.1.

    Args:
        schema: as `json.loads` gives it; without `$schema` it is one of 2020-12.
    """

    def __init__(self, schema: Any) -> None:
        draft = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        exact = jsonschema.validators.extend(draft, {"multipleOf": _multiple_of})
        self._validator: Validator = exact(schema, format_checker=draft.FORMAT_CHECKER)

    def valid(self, value: Any) -> bool | None:
        """Return whether a value is valid; None where jsonschema cannot tell, as with a reference that leads nowhere."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return next(self._validator.iter_errors(value), None) is None
        except Exception:
            return None


def _multiple_of(_: Validator, factor: Any, value: Any, __: Any) -> Iterator[Any]:
    known = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (value, factor))
    if known and Decimal(str(value)) % Decimal(str(factor)):
        yield jsonschema.ValidationError(f"{value} is no multiple of {factor}")
