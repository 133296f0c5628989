"""`python -m localspec.setup.trial FILE`: loads the build that its environment names, has it answer, and writes what came to a file."""

import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import msgspec

import localspec
from localspec.errors import ModelUnavailable
from localspec.llama.backend import build
from localspec.llama.devices import devices
from localspec.options import ReplyOptions, SamplingParams

# Every model continues this in the same way, however its sums are rounded; facts, a small one does not know.
_PROMPT, ANSWER = "1, 2, 3, 4, 5, 6, 7, 8,", "9, 10, 11"
_MODEL = "smollm2-135m"


class BuildTrial(msgspec.Struct, frozen=True):
    """Results of trying a build.

    Args:
        backends: that it has.
        devices: that it can compute on, CPUs left out.
        answer: to the prompt; None if no model was there.
        seconds: that the answer took, without loading.
    """

    backends: tuple[str, ...]
    devices: tuple[str, ...]
    answer: str | None = None
    seconds: float = 0.0


def main(file: str) -> None:
    """Try the build, and write the results to a file: drivers print to stdout and stderr."""
    gpus = tuple(f"{each.name} ({each.description})" for each in devices() if each.is_gpu)
    trial = BuildTrial(build().backends, gpus)
    options = ReplyOptions(sampling=SamplingParams(temperature=0), max_tokens=16)
    with (
        suppress(ModelUnavailable),
        closing(localspec.load(target=_MODEL, draft="off", offline=True)) as assistant,
    ):
        begun_s = time.monotonic()
        answer = assistant.reply(_PROMPT, options, raw=True).text
        seconds = time.monotonic() - begun_s
        trial = msgspec.structs.replace(trial, answer=answer, seconds=seconds)
    Path(file).write_bytes(msgspec.json.encode(trial))


if __name__ == "__main__":
    main(sys.argv[1])
