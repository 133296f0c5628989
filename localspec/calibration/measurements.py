"""Measurements: what passes cost that were measured on this machine, read when asked; None where they were not."""

from pathlib import Path

from localspec.calibration.calibrated import (
    StoredCosts,
    stored_costs,
    stored_heads_costs,
    stored_reading,
)
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.options import LoadOptions
from localspec.storage.paths import data_dir

_LEAST_BYTES = 400_000_000  # passes of less cost something else than reading weights


class Measurements:
    """What was measured on this machine. With which options something is asked for depends on what is decided."""

    def of(
        self, file: Path, options: LoadOptions, role: Role, lora: Path | None = None
    ) -> StoredCosts | None:
        """Return the costs of a model's passes, loaded so."""
        return stored_costs(file, options, role, lora)

    def of_heads(self, file: Path, options: LoadOptions) -> StoredCosts | None:
        """Return those of the heads in a file."""
        return stored_heads_costs(file, options)

    def of_reading(self, file: Path, options: LoadOptions) -> StoredCosts | None:
        """Return those of the passes of a model's prompts."""
        return stored_reading(file, options)

    def largest(self, options: LoadOptions) -> PassCosts | None:
        """Return those of the largest target that was measured on a quiet machine, if its passes mostly read weights."""
        # Few starts have a draft model to judge.
        from localspec.models.inventory import inventory  # noqa: PLC0415
        from localspec.models.registry import load_registry  # noqa: PLC0415
        from localspec.models.store import Store  # noqa: PLC0415

        here = inventory(load_registry(), Store(data_dir()))
        for item in sorted(here, key=lambda each: -each.entry.read_bytes):
            if item.path is not None and item.entry.read_bytes >= _LEAST_BYTES:
                stored = stored_costs(item.path, options, Role.TARGET)
                if stored is not None and stored.sure:
                    return stored.costs
        return None
