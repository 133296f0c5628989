"""The guard of compiling: a compiler that sleeps, grows or dies ends alone, and what is known is not compiled again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localspec.bounded_process import BoundedProcess
from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.chat.test_calls import HERMES_FORM, XML_FORM
from tests.grammar.answers import passes
from tests.grammar.test_tools import call, calls_of, tool
from tests.support.processes import alive
from tests.support.told import KINDS, environment, told, told_compiler
from tests.waiting import until

WORDS = {
    "sleep": r"more than 15 s: make it simpler",
    "grow": r"more than 1024 MiB of memory: make it simpler",
    "die": r"ended its process \(SIGKILL\)",
    "spin": "more than (5|15) s: make it simpler",
}


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    with told_compiler():
        yield


@pytest.mark.parametrize("what", [*KINDS, pytest.param("spin", marks=pytest.mark.slow)])
def test_what_ends_its_compiler_is_refused_in_one_line_and_the_next_is_compiled(what: str) -> None:
    for number in range(2):
        with pytest.raises(UsageError, match=WORDS[what]) as caught:
            require_sound(ReplyOptions(json_schema=told(what, number)))
        assert "\n" not in str(caught.value)
        require_sound(ReplyOptions(json_schema={"enum": [what, number]}))


@pytest.mark.parametrize("form", [{"regex": "a|told to die"}, {"lark": 'start: "told to die"'}])
def test_other_grammars_are_guarded_as_well(form: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="ended its process"):
        require_sound(ReplyOptions(**form))


def test_others_are_compiled_while_one_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLD_CLOCK_S", "4")
    with ThreadPoolExecutor(3) as threads:
        asleep = [
            threads.submit(require_sound, ReplyOptions(json_schema=told("sleep", number)))
            for number in range(2)
        ]
        for number in range(5):
            require_sound(ReplyOptions(json_schema={"enum": ["awake", number]}))
        assert not any(each.done() for each in asleep)
        for each in asleep:
            assert isinstance(each.exception(), UsageError)


def test_what_is_known_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[Any] = [{"const": "known"}, {"type": "string", "pattern": "(?=no)"}, told("sleep")]

    def errors() -> list[str]:
        found = list[str]()
        for each in texts:
            try:
                require_sound(ReplyOptions(json_schema=each))
            except UsageError as error:
                found.append(str(error))
        return found

    first = errors()
    assert len(first) == 2
    monkeypatch.setattr(BoundedProcess, "ask", None)
    assert errors() == first


@pytest.mark.parametrize("form", [HERMES_FORM, XML_FORM])
@pytest.mark.parametrize("what", KINDS)
def test_a_tool_that_ends_the_compiler_is_loosened_alone(form: Any, what: str) -> None:
    argument, good = {"a": told(what)}, tool("good", {"n": {"enum": [1]}})
    calls = calls_of(form, tool("bad", argument), good)
    assert passes(calls, call(form, "bad", a="anything"))
    assert passes(calls, call(form, "good", n=1))
    assert not passes(calls, call(form, "good", n=2))
    with pytest.raises(UsageError, match="tool bad: "):
        calls_of(form, tool("bad", argument, strict=True), good)


def test_a_compiler_ends_with_a_program_that_is_killed() -> None:
    code = f"from localspec.grammar import require_sound; from localspec.options import ReplyOptions; require_sound(ReplyOptions(json_schema={told('sleep')!r}))"
    program = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **environment(None)})  # fmt: skip
    try:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        assert until(lambda: bool(children.read_text().split()))
        (child,) = map(int, children.read_text().split())
        assert until(lambda: Path(f"/proc/{child}/wchan").exists() and _sleeps(child))
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    assert until(lambda: not alive(child))


def _sleeps(pid: int) -> bool:
    """Return whether a process is in the middle of an answer: its stdin reports that its asker is gone."""
    flags = int(Path(f"/proc/{pid}/fdinfo/0").read_text().split("flags:")[1].split()[0], 8)
    return bool(flags & os.O_ASYNC)
