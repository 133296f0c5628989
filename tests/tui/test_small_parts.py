from pathlib import Path

import pytest
from rich.cells import cell_len

from localspec.errors import UsageError
from localspec.options import ReplyOptions, SamplingParams
from localspec.session.preferences import Preferences, keep_theme, read_preferences
from localspec.tui.actions import copied
from localspec.tui.history_sheet import age
from localspec.tui.keys import IN_APP, IN_COMPOSER, ON_MESSAGE, key_list
from localspec.tui.main_view import fitted
from localspec.tui.screens import Pace
from localspec.tui.settings import ChatSettings
from tests.tui.test_message_text import message

ANSWER = "Look:\n\n```python\nx = 1\n```\n\nand\n\n~~~\ny\n~~~\n"


RIGHT = ["20 tokens/s · context 3% ░░", "20 tokens/s · context 3%", "context 3%"]
LEFT = "model · answering, Esc stops · tools"


@pytest.mark.parametrize(
    ("left", "right", "width", "line"),
    [
        ("model", RIGHT, 35, "model   20 tokens/s · context 3% ░░"),
        ("model", RIGHT, 32, "model   20 tokens/s · context 3%"),
        (LEFT, RIGHT, 60, "model · answering, Esc stops · tools              context 3%"),
        (LEFT, RIGHT, 42, "model · answering, Esc stops    context 3%"),
        ("model", [], 12, "model       "),
        ("a very long name of a model", ["context 3%"], 30, "a very long name…   context 3%"),
        ("a very long name of a model", ["context 3%"], 12, "a very long…"),
        ("a-very-long-name", ["context 3%"], 12, "a-very-long…"),
    ],
)
def test_a_line_keeps_what_matters_most(left: str, right: list[str], width: int, line: str) -> None:
    made = fitted(left, right, width)
    assert cell_len(made) == width
    assert made == line


def test_a_line_is_never_wider_than_the_screen() -> None:
    for width in range(1, 70):
        assert cell_len(fitted("日本語モデル · answering", RIGHT, width)) <= width


def test_a_copy_is_the_answer_a_block_of_its_code_or_everything() -> None:
    talk = [message("user", "hi"), message(text=ANSWER)]
    assert copied(talk, "") == ANSWER
    assert copied(talk, "code") == "y"
    assert copied(talk, "1") == "x = 1"
    assert copied(talk, "all") == f"user: hi\n\nassistant: {ANSWER}"

    assert copied([message(text="```\nhalf\nof it")], "code") == "half\nof it"  # it was stopped
    for last, what, why in (
        (message("user", "hi"), "", "no answer to copy"),
        (message(text="prose"), "code", "no block of code: /copy"),
        (message(text=ANSWER), "3", "from 1 to 2"),
    ):
        with pytest.raises(UsageError, match=why):
            copied([last], what)


def test_settings_are_read_as_what_they_are() -> None:
    usual = ChatSettings()
    assert usual.changed("temperature", "0.5").options.sampling.temperature == 0.5
    assert usual.changed("seed", "7").options.seed == 7
    assert usual.changed("seed", "7").changed("seed", "off").options.seed is None
    assert [usual.text_of(each) for each in ("temperature", "seed", "draft")] == ["0.8", "random", "auto"]  # fmt: skip
    assert usual.changed("draft", "off").draft == "off"
    assert usual.changed("draft", "on").draft == "auto"
    assert usual.from_json('{"draft": false}').draft == "off"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("temperature", "hot", "temperature"),
        ("temperature", "-1", "temperature"),
        ("top_k", "1.5", "top_k"),
        ("stop", "x", "stop"),
        ("max_tokens", "0", "max_tokens"),
        ("draft", "maybe", "draft"),
        ("temprature", "1", r"no setting 'temprature': did you mean temperature\?"),
        ("xyzzy", "1", "no setting 'xyzzy': choose one of temperature"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(name: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ChatSettings().changed(name, value)


def test_settings_are_kept_with_a_conversation_but_the_seed() -> None:
    settings = ChatSettings(
        ReplyOptions(SamplingParams(temperature=0.1, top_k=3), seed=9), draft="off"
    )
    kept = ChatSettings().from_json(settings.as_json())
    assert kept == ChatSettings(ReplyOptions(SamplingParams(temperature=0.1, top_k=3)), draft="off")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"temperature": "x"}', '{"top_p": 7}', "3"])
def test_damaged_settings_change_nothing(text: str) -> None:
    settings = ChatSettings(ReplyOptions(SamplingParams(top_k=5)))
    assert settings.from_json(text) == settings


def test_preferences_are_read(tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    file.write_text('theme = "nord"\n[keys]\nstats = "ctrl+s"\n[personas]\nbrief = "Be brief."\n')
    assert read_preferences(file) == Preferences(
        "nord", {"stats": "ctrl+s"}, {"brief": "Be brief."}, file=file
    )
    assert read_preferences(tmp_path / "none") == Preferences(file=tmp_path / "none")
    file.write_text("compact = 'auto'")
    assert read_preferences(file).compact == "auto"


def test_a_theme_is_kept_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "settings/chat.toml"
    keep_theme(read_preferences(file), "light")
    assert read_preferences(file).theme == "light"
    file.write_text('# mine\ntheme = "light"\n[keys]\nstats = "ctrl+s"\n')
    keep_theme(read_preferences(file), "nord")
    assert file.read_text() == '# mine\ntheme = "nord"\n[keys]\nstats = "ctrl+s"\n'
    keep_theme(Preferences(), "light")  # nowhere to keep it


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "color = 1",
        "theme = 1",
        "[keys]\na = 1",
        "keys = 3",
        '"\xff"',
        "[personas.a]",
        "compact = 1",
        "compact = 'never'",
    ],
)
def test_wrong_preferences_are_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        read_preferences(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_key_has_a_name_of_its_own_and_those_of_the_user_are_listed() -> None:
    rows = list(key_list({"stats": "ctrl+s"}))
    assert len(rows) == len(IN_APP) + len(IN_COMPOSER) + len(ON_MESSAGE)
    assert len({name for _, name, _ in rows}) == len(rows)
    assert ("Ctrl+S", "stats", "show where the time goes and what drafting gains") in rows
    assert ("PageUp", "page_back", "scroll up") in rows
    assert ("Ctrl+_", "undo", "undo typing") in rows, "the command /undo is another"
    assert ("Ctrl+J, Shift+Enter, Alt+Enter", "newline", "new line") in rows


def test_ages() -> None:
    assert [age(each) for each in (0, 60, 7200, 86400 * 3)] == [
        "just now",
        "1 minute ago",
        "2 hours ago",
        "3 days ago",
    ]


def test_what_streams_is_drawn_as_often_as_it_is_cheap() -> None:
    pace = Pace()
    pace.drawn(100.0, 7.0)
    assert not pace.is_due(100.1, 7.006)  # 6 ms of a tenth of a second
    assert pace.is_due(100.31, 7.006)
    assert not pace.is_due(100.4, 7.1)  # however dear, it is not left out for ever
    assert pace.is_due(100.5, 7.1)
