"""`python -m localspec.setup.trial`: loads the build that its environment names, asks it something, and prints what came as JSON."""

import json
import sys
import time
from pathlib import Path

import localspec
from localspec.llama.build import build
from localspec.llama.devices import devices
from localspec.models.entries import ModelEntry
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.options import ReplyOptions, SamplingParams
from localspec.storage.paths import data_dir

_QUESTION = "1, 2, 3, 4, 5, 6, 7, 8,"
"""Every model goes on likewise, whatever way its sums are rounded; facts, a small one does not know."""
_MODEL = "smollm2-135m"


def main() -> None:
    """Try the build."""
    backends = build().backends
    gpus = [f"{each.name} ({each.description})" for each in devices() if each.is_gpu]
    answer, seconds = None, 0.0
    path = _model()
    if path is not None:
        assistant = localspec.load(target=str(path), draft="off", offline=True)
        options = ReplyOptions(sampling=SamplingParams(temperature=0), max_tokens=16)
        begun_s = time.monotonic()
        answer = assistant.reply(_QUESTION, options, raw=True).text
        seconds = time.monotonic() - begun_s
        assistant.close()
    told = {"backends": backends, "devices": gpus, "answer": answer, "seconds": seconds}
    sys.stdout.write(f"\n{json.dumps(told)}\n")


def _model() -> Path | None:
    """Return the small model's file, if it is here."""
    entry = load_registry().models.get(_MODEL)
    return Store(data_dir()).path_of(entry) if isinstance(entry, ModelEntry) else None


if __name__ == "__main__":
    main()
