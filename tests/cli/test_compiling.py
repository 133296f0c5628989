"""`run` with a form of answers that ends its compiler: one line, before a model is looked for, and nothing is left behind."""

import json
import os

import pytest

from tests.cli.command import localspec
from tests.support.processes import running
from tests.support.told import environment, told


@pytest.mark.parametrize(("form", "what"), [("json-schema", "grow"), ("regex", "die")])
def test_a_form_that_ends_its_compiler_is_one_line(form: str, what: str) -> None:
    text = json.dumps(told(what)) if form == "json-schema" else f"told to {what}|b"
    done = localspec("run", "no-such-model", f"--{form}", text, "Hi", env=environment())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "more than" in done.err or "SIGKILL" in done.err
    assert not running("compiler_process.py", TOLD_BY=str(os.getpid()))
