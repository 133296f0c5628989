"""Whether a value is valid under a schema, as the `jsonschema` package says, in the schema's own draft."""

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

_PATIENCE_S = 20


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
        """Say whether a value is valid; None where jsonschema cannot tell, as with a reference that leads nowhere."""
        try:
            with patience(_PATIENCE_S), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return next(self._validator.iter_errors(value), None) is None
        except Exception:
            return None


def _multiple_of(_: Validator, factor: Any, value: Any, __: Any) -> Iterator[Any]:
    numbers = (int, float)
    known = (
        isinstance(value, numbers) and not isinstance(value, bool) and isinstance(factor, numbers)
    )
    if known and Decimal(str(value)) % Decimal(str(factor)):
        yield jsonschema.ValidationError(f"{value} is no multiple of {factor}")


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raise TimeoutError where what is done within takes more than so many seconds."""

    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
