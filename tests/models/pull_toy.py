"""`localspec` with a registry of the caller's, named by TOY_REGISTRY: run as a program."""

import os
from pathlib import Path

from localspec.cli import main, models
from localspec.models import pull, transfer
from localspec.models.registry import Registry, parse_registry


def registry() -> Registry:
    path = Path(os.environ["TOY_REGISTRY"])
    return parse_registry(path.read_text(), path.name)


if __name__ == "__main__":
    for module in (pull, models):
        module.load_registry = registry  # type: ignore[attr-defined]
    transfer.PAUSES_S = (0.01, 0.02, 0.05)
    main()
