"""`pins.toml` and `imports.toml` beside the store."""

import re

from lab.fuzz.target import FoundError, check_message, scratch
from localspec.errors import LocalspecError
from localspec.models.entries import shards_of
from localspec.models.ledger import IMPORTS, PINS, with_pins
from localspec.models.store import Store

_SHA = b"0" * 64
SEEDS = (
    b'[models."u/r:Q4_K_M"]\nsize_bytes = 5\nsha256 = "' + _SHA + b'"\nquant = "Q4_K_M"\n'
    b'pin = { date = "2026-11-20", commit = "' + b"a" * 40 + b'" }\n'
    b'sources = [{ kind = "hub", repo = "u/r", file = "a.gguf", revision = "main" }]\n',
    b'[models."mine"]\norigin = "/x/y.gguf"\nsize_bytes = 11\nsha256 = "' + _SHA + b'"\n'
    b'shards = [{ size_bytes = 5, sha256 = "'
    + _SHA
    + b'" }, { size_bytes = 6, sha256 = "'
    + _SHA
    + b'" }]\n',
)


def run(data: bytes) -> None:
    root = scratch() / "models"
    root.mkdir(exist_ok=True)
    for name in ("pins.toml", "imports.toml"):
        (root / name).write_bytes(data)
    store = Store(root)
    for load in (PINS.load, lambda root: with_pins({}, root), IMPORTS.load):
        try:
            entries = load(root).values()
        except LocalspecError as error:
            check_message(str(error))
            continue
        for entry in entries:
            store.path_of(entry)
            for each in (entry, *shards_of(entry)):
                if not re.fullmatch("[0-9a-f]{64}", each.sha256):
                    raise FoundError(f"{each.sha256!r} would become the name of a file")
