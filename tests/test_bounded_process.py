"""What a process that answers questions is said to have ended of."""

from pathlib import Path

import pytest

from localspec.bounded_process import BoundedProcess, ProcessBounds, ProcessLostError

_MODULE = """
from localspec.bounded_process import answer_questions

def answer(question):
    if question == "all memory":
        return bytes(1 << 40)
    return [][question]

answer_questions(answer)
"""


@pytest.mark.parametrize(
    ("question", "reason"),
    [("all memory", "more than 1024 MiB of memory"), (0, r"ended its process \(exit code 1\)")],
)
def test_an_error_of_python_is_not_taken_for_want_of_memory(
    question: object, reason: str, tmp_path: Path
) -> None:
    module = tmp_path / "module.py"
    module.write_text(_MODULE)
    process = BoundedProcess(module)
    with pytest.raises(ProcessLostError, match=reason):
        process.ask(question, ProcessBounds(5, 15, 1 << 30))
    process.end()
