"""A model's weights in other tensor types, or without some of its layers, made by llama.cpp in a process of its own.

There, what llama.cpp refuses by ending the process ends no more than that, and Ctrl-C need not wait for the last tensor.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError
from localspec.llama.backend import clear_log, initialise, last_complaint
from localspec.llama.native import native
from localspec.resources import default_threads
from localspec.storage.paths import shown

_COMMAND = (sys.executable, "-P", "-m", "localspec.llama.quantize")
MADE = {"F16": 1, "Q4_0": 2}
"""Types that all weights can be made, with llama.cpp's `llama_ftype` that is mostly that."""
_LOOK_S = 0.05


def quantise(
    source: Path,
    destination: Path,
    made: str | None = "Q4_0",
    left_out: Collection[int] = (),
    cancel: CancelFlag | None = None,
) -> None:
    """Write a model whose weights are all of one type, or which lacks some layers.

    Args:
        source: the model, or its first file where it has several.
        destination: a new file; there may be a part of it after an error.
        made: the type, one of `MADE`; None leaves every tensor as it is.
        left_out: layers that it lacks; those after one move up.
        cancel: ends it.

    Raises:
        Cancelled: the flag was set.
        LocalspecError: llama.cpp cannot.
    """
    files = [os.fsencode(source).hex(), os.fsencode(destination).hex()]
    task = json.dumps([*files, made, sorted(left_out)])
    with subprocess.Popen(  # noqa: S603 - the command is ours
        [*_COMMAND, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        try:
            while child.poll() is None:
                if cancel is not None and cancel.is_set:
                    raise Cancelled
                time.sleep(_LOOK_S)
        finally:
            child.kill()
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        output = child.stdout.read().decode(errors="replace").strip()
    if child.returncode != 0:
        reason = output.rpartition("\n")[2] or f"it ended with {child.returncode}"
        raise LocalspecError(f"llama.cpp cannot requantise {shown(source)} ({reason[:300]})")


def _quantise(source: bytes, destination: bytes, made: str | None, left_out: Sequence[int]) -> int:
    """Do it in this process; return llama.cpp's code, 0 for success."""
    initialise()
    clear_log()
    params = native.llama_model_quantize_default_params()
    params.nthread = default_threads()
    if made is None:
        params.only_copy = True
    else:
        params.ftype = MADE[made]
        params.pure = params.allow_requantize = True
    if left_out:
        params.prune_layers = (ctypes.c_int32 * (len(left_out) + 1))(*left_out, -1)
    return int(native.llama_model_quantize(source, destination, ctypes.byref(params)))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> int:
    """Do what the argument says, unless the parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    source, destination, made, left_out = json.loads(sys.argv[1])
    code = _quantise(bytes.fromhex(source), bytes.fromhex(destination), made, left_out)
    if code:
        print(last_complaint() or f"code {code}", flush=True)
    return code


if __name__ == "__main__":
    os._exit(main())  # a daemon thread that reads stdin keeps the interpreter from ending in order
