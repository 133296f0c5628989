"""Draft models that were made on this machine for its pairs: `tailored.toml` in the data directory.

A pair has its tailored draft model in place of its own while the file is in the store and the pair still has the target
and the draft model that it was made for.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from localspec.errors import LocalspecError
from localspec.models.entries import TAILORED, ModelEntry, PairEntry, Sha256
from localspec.models.store import Store
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown
from localspec.storage.toml import dump_toml

_MOST_BYTES = 1 << 20


class TailoredDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A draft model that was made for a pair, and how.

    Args:
        pair: the pair's name.
        target: the pair's target, as the registry names it.
        replaces: its own draft model; empty where it has none.
        source: the model that it was made of: the draft model, or the target.
        recipe: how it differs from that, in a phrase.
        found: what was measured.
        size_bytes: of the file.
        sha256: of the file.
    """

    pair: str = ""
    target: str
    replaces: str = ""
    source: str
    recipe: str
    found: str
    size_bytes: int
    sha256: Sha256

    @property
    def name(self) -> str:
        """The name of the model in the registry."""
        return f"{self.pair}-tailored"

    @property
    def entry(self) -> ModelEntry:
        """The model as the registry has it."""
        origin = f"{self.source}, {self.recipe}, for pair {self.pair}: {self.found}"
        return ModelEntry(self.name, self.size_bytes, self.sha256, origin=origin)

    def fits(self, pair: PairEntry) -> bool:
        """Return whether a pair has the target and the draft model that this was made for."""
        return (pair.target, pair.draft_model or "") == (self.target, self.replaces)


class _File(msgspec.Struct):
    pairs: dict[str, TailoredDraft] = {}


def load_tailored(root: Path) -> dict[str, TailoredDraft]:
    """Return the tailored draft models by the names of their pairs.

    Raises:
        LocalspecError: the list cannot be read.
    """
    path = root / TAILORED
    if not os.path.lexists(path):
        return {}
    try:
        found = msgspec.toml.decode(read_bounded(path, _MOST_BYTES), type=_File)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalspecError(
            f"{shown(path)} cannot be read ({reason}): fix or remove it, and tailor again"
        ) from error
    return {name: replace(made, pair=name) for name, made in found.pairs.items()}


def with_tailored(
    models: Mapping[str, ModelEntry], pairs: Mapping[str, PairEntry], root: Path
) -> tuple[dict[str, ModelEntry], dict[str, PairEntry]]:
    """Return a registry's models and pairs with the tailored draft models that are in the store.

    Raises:
        LocalspecError: the list cannot be read.
    """
    models, pairs, store = dict(models), dict(pairs), Store(root)
    for made in load_tailored(root).values():
        pair = pairs.get(made.pair)
        is_here = store.path_of(made.entry) is not None
        if pair is not None and made.fits(pair) and is_here:
            models[made.name] = made.entry
            pairs[made.pair] = replace(pair, draft="model", draft_model=made.name)
    return models, pairs


def keep_tailored(made: TailoredDraft, root: Path) -> None:
    """Add a draft model whose file is in the store to the list, in place of an earlier one of its pair."""
    with locked(root):
        _write(root, {**load_tailored(root), made.pair: made}.values())


def forget_tailored(name: str, root: Path) -> None:
    """Remove a draft model from the list by its name; its file stays."""
    with locked(root):
        known = load_tailored(root)
        left = [each for each in known.values() if each.name != name]
        if len(left) < len(known):
            _write(root, left)


def _write(root: Path, made: Iterable[TailoredDraft]) -> None:
    tables = {each.pair: msgspec.structs.asdict(each) for each in made}
    for table in tables.values():
        del table["pair"]
    write_atomic(root / TAILORED, dump_toml({"pairs": dict(sorted(tables.items()))}))
