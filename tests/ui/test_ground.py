import os
import pty
import tty

import pytest

from localspec.ui.ground import answer, is_dark, typed


@pytest.mark.parametrize(
    ("answer", "dark"),
    [
        (b"\x1b]11;rgb:1414/1616/1b1b\x1b\\\x1b[?62;22c", True),
        (b"\x1b]11;rgb:ff/ff/ff\x07\x1b[?1;2c", False),
        (b"\x1b]11;rgba:fdfd/f6f6/e3e3/ffff\x1b\\", False),
        (b"\x1b[?1;2c", None),
        (b"", None),
    ],
)
def test_the_background_is_dark_as_the_terminal_says(answer: bytes, dark: bool | None) -> None:
    assert is_dark(answer) is dark


def test_what_is_typed_while_the_terminal_answers_is_kept() -> None:
    terminal, ours = pty.openpty()
    tty.setraw(ours)
    try:
        os.write(terminal, "wh\x1b]11;rgb:ffff/ffff/ffff\x1b\\y\x1b[?62;4c?ü".encode())
        said = answer(ours)
        assert is_dark(said) is False
        assert typed(said).decode() == "why?ü"
        assert answer(ours) == b""  # nobody answers
    finally:
        os.close(ours)
        os.close(terminal)
