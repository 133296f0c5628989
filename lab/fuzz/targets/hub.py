"""What a hub answers, as huggingface_hub hands it on: whatever somebody else's server says."""

import json
import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from lab.fuzz.target import FoundError
from localspec.models import hub
from localspec.models.entries import SEGMENTS, HubName, ModelEntry
from localspec.models.names import learn

_SHA = "0" * 64


def _answer(*names: str, sha: object = "a" * 40) -> bytes:
    files = [{"rfilename": n, "size": 5, "lfs": {"sha256": _SHA}} for n in names]
    return json.dumps({"sha": sha, "siblings": files}).encode()


SEEDS = (
    _answer("m-Q4_K_M.gguf", "README.md"),
    _answer("m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"),
    _answer("../../etc/passwd.gguf", "a/b/Q8_0.gguf", "mmproj-Q4_K_M.gguf"),
    _answer(sha=None),
    b'{"sha": 5, "siblings": null}',
)


def run(data: bytes) -> None:
    try:
        answer = json.loads(data, object_hook=lambda fields: SimpleNamespace(**fields))
        answer.sha, answer.siblings = answer.sha, list(answer.siblings or [])
    except (ValueError, TypeError, AttributeError, RecursionError):
        return  # huggingface_hub's own affair
    with (
        patch.object(hub.library().constants, "HF_HUB_OFFLINE", False),
        patch.object(hub, "list_repository", lambda *_: answer),
    ):
        for quant in (None, "Q8_0"):
            found: Any = learn(HubName("u/r", quant))
            _check(found)


def _check(entry: ModelEntry) -> None:
    for each in entry.shards or (entry,):
        for source in each.sources:
            file = getattr(source, "file", "")
            if not re.fullmatch(SEGMENTS, file) or ".." in file.split("/"):
                raise FoundError(f"{file!r} would be fetched")
