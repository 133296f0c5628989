"""Makes a head, and is killed: `python -m tests.student.killed PLACE NAME COUNT`, when NAME in PLACE is called for the COUNT-th time."""

import os
import signal
import sys
from pkgutil import resolve_name
from typing import Any

import torch
from localspec_student import collect, make

from tests.student.test_making import job_of

vars(make)["per_workload"] = lambda *_: []
collect._ANSWER = 24
torch.set_num_threads(1)
place, name, count = resolve_name(sys.argv[1]), sys.argv[2], int(sys.argv[3])
work, calls = getattr(place, name), iter(range(1, count))


def killed(*given: Any, **named: Any) -> Any:
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return work(*given, **named)


setattr(place, name, killed)
job_of().make()
