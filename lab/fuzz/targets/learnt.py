"""`learnt.json` and `imported.json` beside the store."""

import re

from lab.fuzz.scratch import scratch
from lab.fuzz.target import FoundError, check_message
from localspec.errors import LocalspecError
from localspec.models.imported import load_imported
from localspec.models.learnt import load_learnt, with_learnt
from localspec.models.store import Store

_SHA = b"0" * 64
SEEDS = (
    b'{"u/r:Q4_K_M": {"repo": "u/r", "revision": null, "commit": "'
    + b"a" * 40
    + b'", "date": "2026-11-20", '
    b'"quant": "Q4_K_M", "files": [{"file": "a.gguf", "size_bytes": 5, "sha256": "'
    + _SHA
    + b'"}]}}',
    b'{"mine": {"sha256": "'
    + _SHA
    + b'", "size_bytes": 5, "origin": "/x/y.gguf", "shards": [["'
    + _SHA
    + b'", 5]]}}',
    b'{"mine": {"sha256": "' + _SHA + b'", "size_bytes": 5, "origin": "/x/y.gguf"}}',
)


def run(data: bytes) -> None:
    root = scratch() / "models"
    root.mkdir(exist_ok=True)
    for name in ("learnt.json", "imported.json"):
        (root / name).write_bytes(data)
    store = Store(root)
    try:
        load_learnt(root)
        for entry in with_learnt({}, root).values():
            for each in (entry, *entry.shards):
                if not re.fullmatch("[0-9a-f]{64}", each.sha256):
                    raise FoundError(f"{each.sha256!r} would become the name of a file")
                store.path_of(each)
    except LocalspecError as error:
        check_message(str(error))
    for imported in load_imported(root).values():
        if not re.fullmatch("[0-9a-f]{64}", imported.entry.sha256):
            raise FoundError(f"{imported.entry.sha256!r} would become the name of a file")
        store.path_of(imported.entry)
