"""Plants a bug: swaps one expression in the source of a function, as a slip of the hand would.

The function object stays the same one, so that every module that imported it has the bug.
"""

import inspect
import textwrap
from collections.abc import Mapping
from types import FunctionType

import pytest


def plant(
    monkeypatch: pytest.MonkeyPatch,
    function: object,
    right: str,
    wrong: str,
    names: Mapping[str, object] | None = None,
) -> None:
    """Replace `right`, which occurs once, by `wrong` in the body of a plain `function` until the test ends; `names` are globals for it."""
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"nowhere to plant the bug: {right!r} is not in\n{source}"
    module = dict(function.__globals__)
    exec(f"from __future__ import annotations\n{source.replace(right, wrong)}", module)
    broken = module[function.__name__]
    assert isinstance(broken, FunctionType)
    for name, value in (names or {}).items():
        monkeypatch.setitem(function.__globals__, name, value)
    monkeypatch.setattr(function, "__code__", broken.__code__)
