import subprocess
import sys

import pytest

from tests.cli.command import assert_one_complaint, environment, localspec

# As the installed command has it: the variable's name is made of the program's.
RUN = "import sys; sys.argv = ['localspec', *sys.argv[1:]]; from localspec.__main__ import main; main()"


def asked(words: str) -> dict[str, str]:
    return {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}


def completed(words: str) -> list[str]:
    """Return what bash would offer behind these words."""
    done = localspec(env={"_PYTHON _M LOCALSPEC_COMPLETE": "bash_complete", **asked(words)})
    return offered(done.out, done.err)


def offered(out: str, err: str) -> list[str]:
    assert err == ""
    return [line.partition(",")[2] for line in out.splitlines()]


def test_the_installed_command_completes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True,
        text=True,
        check=True,
        env=environment({"_LOCALSPEC_COMPLETE": "bash_complete", **asked("localspec ch")}),
    )
    assert offered(done.stdout, done.stderr) == ["chat", "check"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(shell: str) -> None:
    done = localspec("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_LOCALSPEC_COMPLETE" in done.out


def test_an_unknown_shell_is_code_2() -> None:
    assert_one_complaint(localspec("completion", "dos"), 2)


def test_verbs_are_completed() -> None:
    assert completed("localspec ch") == ["chat", "check"]
    assert {"run", "chat", "pull"} <= set(completed("localspec ''"))


def test_options_and_their_choices_are_completed() -> None:
    assert completed("localspec chat --pl") == ["--plain"]
    assert completed("localspec chat --draft lo") == ["lookup"]


def test_names_are_completed() -> None:
    assert "qwen3-4b" in completed("localspec run --pair qwen3")
    assert "qwen3-0.6b" in completed("localspec run qwen3")
    assert completed("localspec pull smollm2-13") == ["smollm2-135m"]
    assert completed("localspec config set temp") == ["temperature"]
