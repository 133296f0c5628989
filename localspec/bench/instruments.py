"""Instruments: what `bench` borrows from `lab/`, the folder of the repository that is not shipped."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from localspec.errors import UsageError

_LAB = Path(__file__).parents[2] / "lab"


def instrument(name: str, option: str) -> Any:
    """Return a package of `lab/`.

    Another package that happens to be called `lab` is never imported.

    Args:
        name: of the package, such as `peers`.
        option: what the user wrote that needs it.

    Raises:
        UsageError: localspec does not run from a checkout.
    """
    spec = importlib.util.find_spec("lab")
    if spec is None or spec.origin is None or Path(spec.origin).parent != _LAB:
        raise UsageError(
            f"{option} needs an instrument that comes with a checkout of the repository: "
            "run localspec from one (pip install -e .)"
        )
    return importlib.import_module(f"lab.{name}")
