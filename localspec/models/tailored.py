"""Draft models that were made on this machine for its pairs: `tailored.toml` in the data directory.

A pair has its tailored draft model in place of its own while the file is in the store and the pair still has the target
and the draft model that it was made for.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from localspec.errors import LocalspecError
from localspec.models.entries import SHA256, TAILORED, ModelEntry, PairEntry
from localspec.models.store import Store
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown

_MOST_BYTES = 1 << 20
_CUT_HEAD = re.compile(r"head of [\d,]+ ids")


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
    sha256: Annotated[str, msgspec.Meta(pattern=f"^{SHA256}$")]

    @property
    def name(self) -> str:
        """The name of the model in the registry."""
        return f"{self.pair}-tailored"

    @property
    def entry(self) -> ModelEntry:
        """The model as the registry has it."""
        origin = f"{self.source}, {self.recipe}, for pair {self.pair}: {self.found}"
        return ModelEntry(self.name, self.size_bytes, self.sha256, origin=origin)

    @property
    def has_cut_head(self) -> bool:
        """Whether an earlier version made it with logits for a part of the vocabulary: no version loads that any more."""
        return _CUT_HEAD.search(self.recipe) is not None

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
    return {name: msgspec.structs.replace(made, pair=name) for name, made in found.pairs.items()}


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
        usable = not made.has_cut_head and store.path_of(made.entry) is not None
        if pair is not None and made.fits(pair) and usable:
            models[made.name] = made.entry
            pairs[made.pair] = replace(pair, draft="model", draft_model=made.name)
    return models, pairs


def cut_head_note(pair: str, root: Path) -> str | None:
    """Return that the draft model of a pair is not loaded since its head was cut, in a line; None where it is not so."""
    made = load_tailored(root).get(pair)
    if made is None or not made.has_cut_head:
        return None
    return (
        f"{made.name} is not used: an earlier version made it for a part of the vocabulary; "
        f"`localspec tailor --undo {pair}` removes it"
    )


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
    tables = []
    for draft in sorted(made, key=lambda each: each.pair):
        values = msgspec.structs.asdict(draft)
        pair = values.pop("pair")
        lines = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
        ]
        tables.append("\n".join([f"[pairs.{json.dumps(pair)}]", *lines, ""]))
    write_atomic(root / TAILORED, "\n".join(tables).encode())
