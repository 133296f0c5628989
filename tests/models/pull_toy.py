"""`localspec` with a registry of the caller's, named by TOY_REGISTRY: run as a program.

TOY_LARGE_BYTES is what counts as a large download; headers of small files are read ahead, too, then.

Nothing heavy is imported before the program itself does: where memory is short, it is the program that says so.
"""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from localspec.__main__ import main
from localspec.models import registry, transfer
from localspec.models.ledger import with_pins
from localspec.storage.paths import data_dir


def load_registry() -> registry.Registry:
    path = Path(os.environ["TOY_REGISTRY"])
    known = registry.parse_registry(path.read_text(), path.name)
    return replace(known, models=with_pins(known.models, data_dir()))


if __name__ == "__main__":
    usual = registry.load_registry
    for module in list(sys.modules.values()):  # in a warm process all have imported it
        if getattr(module, "load_registry", None) is usual:
            module.load_registry = load_registry  # type: ignore[attr-defined]
    transfer.PAUSES_S = (0.01, 0.02, 0.05)
    if "TOY_LARGE_BYTES" in os.environ:
        pull_preview = importlib.import_module("localspec.cli.pull")
        pull_preview.LARGE_BYTES = int(os.environ["TOY_LARGE_BYTES"])  # type: ignore[attr-defined]
        pull_preview.READ_AHEAD_BYTES = 1  # type: ignore[attr-defined]
    main()
