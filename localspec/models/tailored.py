"""Draft models that were made on this machine for its pairs: `tailored.toml` in the data directory.

A pair has its tailored draft model in place of its own for as long as the file is there and the pair is the one that it
was made for. The files lie in the store, by their sha256, like all others.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import NAME, SHA256, TAILORED, ModelEntry, PairEntry
from localspec.models.store import Store
from localspec.models.toml import parse_toml
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown

_MOST_BYTES = 1 << 20
_PHRASE = r"[^\x00-\x1f\x7f]+"


@dataclass(frozen=True, slots=True)
class TailoredDraft:
    """A draft model that was made for a pair, and how.

    Args:
        pair: the pair's name.
        target: the pair's target, as the registry names it.
        replaces: its own draft model; empty where it has none.
        source: what it was made of: the draft model, or the target.
        source_sha256: of that.
        recipe: what was done with it.
        found: what was measured of it, and when.
        llama_cpp: the version that made it.
        size_bytes: of the file.
        sha256: likewise.
    """

    pair: str
    target: str
    replaces: str
    source: str
    source_sha256: str
    recipe: str
    found: str
    llama_cpp: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """What the registry calls it."""
        return f"{self.pair}-tailored"

    @property
    def entry(self) -> ModelEntry:
        """The model."""
        origin = f"{self.source}, {self.recipe}, for pair {self.pair}: {self.found}"
        return ModelEntry(self.name, self.size_bytes, self.sha256, origin=origin)

    def suits(self, pair: PairEntry) -> bool:
        """Return whether it was made for a pair as it is now."""
        return (pair.target, pair.draft_model or "") == (self.target, self.replaces)


def load_tailored(root: Path) -> dict[str, TailoredDraft]:
    """Return what was made, by the names of pairs.

    Raises:
        LocalspecError: the list cannot be read.
    """
    path = root / TAILORED
    if not os.path.lexists(path):
        return {}
    try:
        top = parse_toml(read_bounded(path, _MOST_BYTES).decode(), path.name)
        found = {}
        for name, table in top.tables("pairs", NAME):
            found[name] = TailoredDraft(
                pair=name,
                target=table.text("target", _PHRASE),
                replaces=table.optional_text("replaces", _PHRASE) or "",
                source=table.text("source", _PHRASE),
                source_sha256=table.text("source_sha256", SHA256),
                recipe=table.text("recipe", _PHRASE),
                found=table.text("found", _PHRASE),
                llama_cpp=table.text("llama_cpp", _PHRASE),
                size_bytes=table.positive("size_bytes"),
                sha256=table.text("sha256", SHA256),
            )
            table.finish()
        top.finish()
    except (OSError, ValueError, UsageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalspecError(
            f"{shown(path)} cannot be read ({reason}): fix or remove it, and tailor again"
        ) from error
    return found


def with_tailored(
    models: Mapping[str, ModelEntry], pairs: Mapping[str, PairEntry], root: Path
) -> tuple[dict[str, ModelEntry], dict[str, PairEntry]]:
    """Return a registry's models and pairs with what was made for them and is here.

    Raises:
        LocalspecError: the list cannot be read.
    """
    models, pairs, store = dict(models), dict(pairs), Store(root)
    for made in load_tailored(root).values():
        pair = pairs.get(made.pair)
        if pair is not None and made.suits(pair) and store.path_of(made.entry) is not None:
            models[made.name] = made.entry
            pairs[made.pair] = replace(pair, draft="model", draft_model=made.name)
    return models, pairs


def keep_tailored(made: TailoredDraft, root: Path) -> None:
    """Note a draft model whose file is in the store; of one pair, the latest counts."""
    with locked(root):
        _write(root, {**load_tailored(root), made.pair: made}.values())


def forget_tailored(name: str, root: Path) -> None:
    """Forget a draft model by its name; its file stays."""
    with locked(root):
        known = load_tailored(root)
        left = [each for each in known.values() if each.name != name]
        if len(left) < len(known):
            _write(root, left)


def _write(root: Path, made: Iterable[TailoredDraft]) -> None:
    tables = []
    for draft in sorted(made, key=lambda each: each.pair):
        lines = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in asdict(draft).items()
            if key != "pair" and value != ""
        ]
        tables.append("\n".join([f"[pairs.{json.dumps(draft.pair)}]", *lines, ""]))
    write_atomic(root / TAILORED, "\n".join(tables).encode())
