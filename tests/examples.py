"""Properties have a short form by default, and five times as many examples where there is time."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

LONG = "LOCALSPEC_LONG_TESTS" in os.environ


def examples(most: int) -> Callable[[Any], Any]:
    """Try so many examples in the long form, and a fifth of them by default."""

    def decorate(test: Any) -> Any:
        count = most if LONG else most // 5
        return pytest.mark.long(settings(max_examples=count, deadline=None)(test))

    return decorate
