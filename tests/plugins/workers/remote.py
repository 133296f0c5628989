"""Jobs on workers, whose devices are no CPU of this process: `python -m tests.plugins.workers.remote`, with the jobs as JSON on stdin.

What was registered once stays so in a process, and llama.cpp ends a process that needs a worker that is gone.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localspec.decoding.cancel import CancelFlag
from localspec.llama.buffer_log import together
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.models.gguf import read_header
from localspec.options import LoadOptions
from localspec.plan.facts import free_memory
from localspec.plan.fit import PairLoad
from localspec.plugins.workers.rpc import use_workers
from localspec.resources import Usage
from tests.waiting import PATIENCE_S


def results(places: Sequence[str], jobs: Sequence[Mapping[str, Any]], data: Path) -> list[Any]:
    """Return the results of jobs, all in one process that has the workers as devices RPC0 and so on."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugins.workers.remote"],
        input=json.dumps({"places": places, "jobs": jobs}),
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
        env={**os.environ, "LOCALSPEC_DATA_DIR": str(data)},
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def _options(given: Mapping[str, Any]) -> LoadOptions:
    options = LoadOptions(**{**given, "devices": tuple(given.get("devices", ()))})
    return options.exact() if given.get("repack") is False else options


def _memory(job: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return what is predicted of each place for a target and a draft model, and what llama.cpp allocates, in bytes.

    Rows of output are left out: llama.cpp allocates them with the first pass.
    """
    path = Path(job["path"])
    options, draft_options = _options(job["options"]), _options(job["draft_options"])
    header = read_header(path)
    plan = PairLoad.of(header, header, options, draft_options).fit(free_memory())
    assert plan is not None
    real = dict[str, Usage]()
    for each in (options, draft_options):
        model = LlamaModel(path, each)
        context = LlamaContext(model)
        real = together([real, model.allocated, context.native.allocated])
        model.close()

    def without_rows(usage: Usage) -> int:
        return usage.total_bytes - usage.output_bytes

    return {
        use.place.name: [
            without_rows(use.target + use.draft_model),
            without_rows(real.get(use.place.name, Usage())),
        ]
        for use in plan.uses
    }


def _gap(job: Mapping[str, Any]) -> float:
    """Return the largest difference of a logit between two placements, of single tokens after a prompt."""
    rows = []
    for given in (job["options"], job["others"]):
        model = LlamaModel(Path(job["path"]), _options(given))
        context = LlamaContext(model)
        tokens = list(range(1000, 1060))
        rows.append([context.logits(tokens[:length], 1).copy() for length in range(52, 60)])
        model.close()
    return float(np.max(np.abs(np.array(rows[0]) - np.array(rows[1]))))


def _prompt(job: Mapping[str, Any]) -> tuple[float, float, int]:
    """Return the seconds that a prompt takes without rows and that a row after it takes, and the tokens of a next chunk."""
    options = _options(job["options"])
    model = LlamaModel(Path(job["path"]), options)
    sequences = LlamaSequences(model, CancelFlag(), options, 1, 1, pass_s=job["pass_s"])
    view, tokens = sequences.views[0], list(range(1000, 1000 + job["tokens"]))
    start_s = time.perf_counter()
    view.prefill(tokens)
    prompt_s = time.perf_counter() - start_s
    view.logits([*tokens, 1], 1)
    row_s = time.perf_counter() - start_s - prompt_s
    model.close()
    return prompt_s, row_s, sequences.chunk(0)


_JOBS = {each.__name__.removeprefix("_"): each for each in (_memory, _gap, _prompt)}


def _main() -> None:
    request = json.load(sys.stdin)
    workers = request["places"]
    use_workers(workers)
    jobs = [{**job, "workers": workers} for job in request["jobs"]]
    json.dump([_JOBS[job["do"]](job) for job in jobs], sys.stdout)


if __name__ == "__main__":
    _main()
