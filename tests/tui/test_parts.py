"""The chat's small parts: commands, completion, settings and preferences, lines of figures, texts of messages, copies."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from localspec.chat.events import Started
from localspec.config.keys import KEYS
from localspec.decoding.drafters.register import DRAFTERS, DrafterEntry
from localspec.decoding.gain import Gain
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.history.records import StoredMessage
from localspec.messages import Message, Role, ToolCall
from localspec.options import ReplyOptions, SamplingParams
from localspec.session.preferences import Preferences, keep_theme, read_preferences
from localspec.tui import lens
from localspec.tui.actions import copied, number
from localspec.tui.commands import BY_NAME, COMMANDS, goes_on, matching, parse, unquoted
from localspec.tui.composer import complete
from localspec.tui.history_sheet import age
from localspec.tui.keys import IN_APP, IN_COMPOSER, ON_MESSAGE, key_list, read_keys
from localspec.tui.lens import MARKS, counts, legend, marked, pieces
from localspec.tui.main_view import fitted
from localspec.tui.message_text import call_line, growing_text, message_text
from localspec.tui.screens import Pace
from localspec.tui.settings import ChatSettings
from localspec.tui.stats import average_line, ribbon, split, split_bar, stats, stats_lines, status
from tests.support.checks import refuses
from tests.tui.answers import exchange, finished, plain, round_of, tokens


def message(role: Role = "assistant", text: str = "text", **changes: object) -> StoredMessage:
    made = Message.from_text(role, text)
    model = "toy" if role == "assistant" else ""
    stored = StoredMessage(1, None, made, "complete", 0.0, model, "", (1,))
    return replace(stored, **changes)  # type: ignore[arg-type]


def test_commands_are_read_with_their_arguments_and_completed() -> None:
    commands = {
        "/save  a new title ": ("save", "a new title"),
        "/bye": ("quit", ""),
        "/exit": ("quit", ""),
        "/clear": ("new", ""),
        "/?": ("help", ""),
        "/load #3": ("history", "#3"),
        "/retry 7": ("regenerate", "7"),
        "/ex md": ("export", "md"),  # other names count where they are whole
        "/reg": ("regenerate", ""),
    }
    for line, (name, argument) in commands.items():
        assert parse(line) == (BY_NAME[name], argument)
    # A path is no command.
    for text in ("/etc/passwd is what?", "//", "/", "hello /new", " /new", "/usr/bin"):
        assert parse(text) is None
    refuses("/regenerate, /reveal, /restart", parse, "/re")
    refuses(r"no command /exprot: did you mean /export or /exit\?", parse, "/exprot md")
    refuses("no command /colours: /help lists them", parse, "/colours")
    refuses(r"did you mean /model\?", parse, "/modle")
    for line in ("exit", "quit", " Exit "):  # a person leaves by a bare word
        assert parse(line, typed=True) == (BY_NAME["quit"], "")
        assert parse(line) is None  # a line on a pipe is a question
        assert parse(f"how do I {line}?", typed=True) is None


def test_the_menu_has_about_twenty_commands_and_counts_from_one() -> None:
    aliases = [alias for each in COMMANDS for alias in each.aliases]
    assert len({*aliases, *BY_NAME}) == len(aliases) + len(BY_NAME)
    assert 18 <= len(matching("/")) <= 22
    assert not any(each.rare for each in matching("/"))
    for typed, names in (("/ex", ["export"]), ("/port", ["export"]), ("/rest", ["restart"]), ("/new x", [])):  # fmt: skip
        assert [each.name for each in matching(typed)] == names
    assert number("3", "question", 3) == 3
    for wrong in ("0", "4", "-1", "x", "1.5", "²"):
        refuses("give a number from 1 to 3", number, wrong, "question", 3)
    for text, inner in {'"""\na\nb\n"""': "a\nb", '""" a """': " a "}.items():
        assert (unquoted(text), goes_on(text)) == (inner, False)
    for text, more in {'"""a""" b': False, "a": False, 'a """': False, '""""': True, '"""': True, '""" a\nb': True}.items():  # fmt: skip
        assert (unquoted(text), goes_on(text)) == (text, more)


def test_commands_arguments_and_paths_are_completed(tmp_path: Path) -> None:
    for name in ("notes.md", "my file.md"):
        (tmp_path / name).write_text("x")
    (tmp_path / "src").mkdir()
    for typed, texts in {
        "/his": ["/history "],
        "/export ": ["/export md ", "/export json "],
        "/export j": ["/export json "],
        "/export json": [],
        "Sum up @no| now": ["Sum up @notes.md  now"],
        "@my": ['@"my file.md" '],
        "@s": ["@src/"],
        "me@not": [],
    }.items():
        before, _, after = typed.partition("|")
        assert [each.text for each in complete(before + after, len(before), tmp_path)] == texts
    # A name that would move the cursor is clean.
    (tmp_path / "a\x1b[2J").write_text("x")
    (command,), (path,) = complete("/new", 4, tmp_path), complete("@a", 2, tmp_path)
    assert command.whole
    assert path.label == "a␛[2J"


RIGHT = ["20 tokens/s · context 3% ░░", "20 tokens/s · context 3%", "context 3%"]
LEFT, NAME = "model · answering, Esc stops · tools", "a very long name of a model"


def test_a_line_keeps_what_matters_most_and_is_never_wider_than_the_screen() -> None:
    for left, right, width, line in (
        ("model", RIGHT, 35, "model   20 tokens/s · context 3% ░░"),
        ("model", RIGHT, 32, "model   20 tokens/s · context 3%"),
        (LEFT, RIGHT, 60, "model · answering, Esc stops · tools              context 3%"),
        (LEFT, RIGHT, 42, "model · answering, Esc stops    context 3%"),
        ("model", [], 12, "model       "),
        (NAME, ["context 3%"], 30, "a very long name…   context 3%"),
        (NAME, ["context 3%"], 12, "a very long…"),
        ("a-very-long-name", ["context 3%"], 12, "a-very-long…"),
    ):
        assert fitted(left, right, width) == line
        assert cell_len(line) == width
    for width in range(1, 70):
        assert cell_len(fitted("日本語モデル · answering", RIGHT, width)) <= width


ANSWER = "Look:\n\n```python\nx = 1\n```\n\nand\n\n~~~\ny\n~~~\n"


def test_a_copy_is_the_answer_a_block_of_its_code_or_everything() -> None:
    talk = [message("user", "hi"), message(text=ANSWER)]
    copies = {"": ANSWER, "code": "y", "1": "x = 1", "all": f"user: hi\n\nassistant: {ANSWER}"}
    assert {what: copied(talk, what) for what in copies} == copies
    assert copied([message(text="```\nhalf\nof it")], "code") == "half\nof it"  # it was stopped
    refuses("no answer to copy", copied, [message("user", "hi")], "")
    refuses("no block of code: /copy", copied, [message(text="prose")], "code")
    refuses("from 1 to 2", copied, [message(text=ANSWER)], "3")


def test_settings_are_read_as_what_they_are_and_kept_but_for_the_seed() -> None:
    usual = ChatSettings()
    assert usual.changed("temperature", "0.5").options.sampling.temperature == 0.5
    assert usual.changed("seed", "7").options.seed == 7
    assert usual.changed("seed", "7").changed("seed", "off").options.seed is None
    texts = {"temperature": "0.8", "seed": "random", "draft": "auto"}
    assert {name: usual.text_of(name) for name in texts} == texts
    assert usual.changed("draft", "off").draft == "off"
    assert usual.changed("draft", "on").draft == "auto"
    sampling = SamplingParams(temperature=0.1, top_k=3)
    settings = ChatSettings(ReplyOptions(sampling, seed=9), draft="off")
    assert usual.from_json(settings.as_json()) == ChatSettings(ReplyOptions(sampling), draft="off")
    for damaged in ("", "{", "[]", '{"temperature": "x"}', '{"top_p": 7}', "3"):
        assert settings.from_json(damaged) == settings
    for wrong in ("temperature hot", "temperature -1", "top_k 1.5", "stop x", "max_tokens 0", "draft maybe"):  # fmt: skip
        name, value = wrong.split()
        refuses(name, usual.changed, name, value)
    refuses(r"did you mean temperature\?", usual.changed, "temprature", "1")
    refuses("choose one of temperature", usual.changed, "xyzzy", "1")


def test_preferences_are_read_and_kept_and_wrong_ones_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    assert read_preferences(file) == Preferences(file=file)
    file.write_text('theme = "nord"\n[keys]\nstats = "ctrl+s"\n[personas]\nbrief = "Be brief."\n')
    own = Preferences("nord", {"stats": "ctrl+s"}, {"brief": "Be brief."}, file=file)
    assert read_preferences(file) == own
    file.write_text("compact = 'auto'")
    assert read_preferences(file).compact == "auto"
    wrong = ("=", "color = 1", "theme = 1", "[keys]\na = 1", "keys = 3", '"\xff"', "[personas.a]", "compact = 1", "compact = 'never'")  # fmt: skip
    for text in wrong:
        file.write_bytes(text.encode("latin-1"))
        refuses(str(file), read_preferences, file)
    file = tmp_path / "settings/chat.toml"
    keep_theme(read_preferences(file), "light")
    assert read_preferences(file).theme == "light"
    file.write_text('# mine\ntheme = "light"\n[keys]\nstats = "ctrl+s"\n')
    keep_theme(read_preferences(file), "nord")
    assert file.read_text() == '# mine\ntheme = "nord"\n[keys]\nstats = "ctrl+s"\n'
    keep_theme(Preferences(), "light")  # nowhere to keep it


def test_keys_have_names_and_times_are_short() -> None:
    names = [name for _, name, _ in key_list({"stats": "ctrl+s"})]
    assert len({*names}) == len(names) == len(IN_APP) + len(IN_COMPOSER) + len(ON_MESSAGE)
    ages = {0: "just now", 60: "1 minute ago", 7200: "2 hours ago", 86400 * 3: "3 days ago"}
    assert {seconds: age(seconds) for seconds in ages} == ages
    pace = Pace()
    pace.drawn(100.0, 7.0)
    # 6 ms of a tenth of a second; and however dear, it is not left out for ever.
    due = ((100.1, 7.006, False), (100.31, 7.006, True), (100.4, 7.1, False), (100.5, 7.1, True))
    assert [pace.is_due(now, spent) for now, spent, _ in due] == [each for *_, each in due]


def test_a_key_that_has_two_meanings_has_one_and_the_other_is_known_to_be_gone() -> None:
    chosen = {"lens": "f2", "stats": "f2", "send": "f2", "message_copy": "enter", "suspend": "f8"}
    right, wrong = read_keys(chosen)
    assert right == {"lens": "f2", "message_copy": "enter", "suspend": "f8"}
    assert wrong == [
        "chat.toml, [keys]: stats is 'f2', which lens has: give it another",
        "chat.toml, [keys]: send is 'f2', which lens has: give it another",
    ]
    keys = {name: key for key, name, _ in key_list(right)}
    names = "lens", "stats", "model", "message_think", "send", "message_copy"
    assert [keys[name] for name in names] == ["F2", "", "", "t", "Enter", "Enter"]
    assert all(key for key, *_ in key_list({"stop": "escape"})), "a message's own Esc stays"


def test_texts_of_messages_have_headings_files_and_figures() -> None:
    assert message_text(message("user"), 3).heading == "You · 3"
    assert message_text(message(siblings=(0, 1, 2))).heading == "toy · version 2 of 3"
    made = message_text(message("user", 'See @a\n\n<file name="a">\nlong\n</file>'), 1)
    assert (made.text, made.note) == ("See @a", "+ a · 4 B · ≈ 1 token")
    figures = {"tokens": 12, "tokens_per_s": 20.04, "accepted": 0.5, "stop": "cancelled"}
    note = "12 tokens · 20.0 tokens/s · stopped"
    assert message_text(message(figures=json.dumps(figures), state="cut")).note == note
    assert message_text(message(state="cut")).note == "interrupted, /continue resumes"
    drafted = {**figures, "drafted": 137, "confirmed": 96, "gain": 1.52}
    for more, words in (
        ({}, "drafting \u00d71.5 · 96 of 137 drafted tokens accepted"),
        ({"gain": None}, "drafting gain not known yet · 96 of 137 drafted tokens accepted"),
        ({"drafted": 0, "no_drafting": "no drafting: it is off"}, "no drafting: it is off"),
    ):
        shown = message_text(message(figures=json.dumps(drafted | more), state="cut")).note
        assert shown == f"12 tokens · 20.0 tokens/s · {words} · stopped"
    for another in ("{", "[]", '{"tokens": "many", "accepted": null}'):  # of another version
        assert message_text(message(figures=another)).note == ""
    waiting = exchange("")
    assert growing_text(waiting, "toy", None).note == "waiting for the model …"
    waiting.started, waiting.prefilled = Started(100, 40), 0.5
    assert growing_text(waiting, "toy", None).note == "reading 30 of 60 tokens …"
    assert growing_text(exchange(" more"), "toy", message(text="some")).text == "some more"


TOKENS = [
    tokens("The", by="prompt"),
    tokens(" cat", " sat", " on", by="model", drafted=3, accepted=2),
    tokens(" the", " mat", by="lookup", drafted=1, accepted=1),
    tokens("."),
]


def test_every_origin_has_marks_that_need_no_colour_and_command_no_terminal() -> None:
    assert marked(TOKENS) == "The[ cat sat]< on>{ the}+ mat+."
    assert "".join(text for text, _ in pieces(TOKENS)) == "The cat sat on the mat."
    origins = ["[text]     2", "{text}     1", "<text>     1", "+text+     1", " text      2"]
    assert [line[:12] for line in legend(TOKENS)] == origins
    marks = [(mark.open, mark.close) for mark in MARKS.values()]
    assert len(set(marks)) == len(marks)
    happened = [tokens("", "日", by="model", drafted=2, accepted=2)]
    assert pieces(happened) == [("日", MARKS["model"])], "where a character ends"
    assert counts(happened) == {MARKS["model"]: 2}
    assert "\x1b" not in marked([tokens("\x1b[2J", by="model", drafted=1, accepted=1)])
    code = [
        tokens("def f():", "\n   ", by="model", drafted=1, accepted=1),
        tokens(" return", " 1\n", by="lookup", drafted=2, accepted=2),
    ]
    assert marked(code) == "[def f():]\n    {return 1}\n"


def test_a_drafter_of_another_package_has_its_own_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened = [tokens("a", by="series", drafted=1, accepted=1)]
    assert marked(happened) == "a", "not known yet"
    assert KEYS["draft"].problem("series") is not None
    entry = DrafterEntry("series", "none", 5, False, "<>", "accent", "the series goes on")
    monkeypatch.setitem(DRAFTERS, entry.name, entry)
    monkeypatch.setattr(lens, "MARKS", dict(MARKS))
    assert marked(happened) == "<a>"
    assert legend(happened) == ["<text>     1  the series goes on"]
    assert KEYS["draft"].problem("series") is None
    assert KEYS["draft"].read("series") == "series"


def text_of(line: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in line)


def test_the_ribbon_shows_the_last_rounds_by_drafter_and_time_is_split_in_three() -> None:
    rounds = [round_of(7, accepted) for accepted in range(8)]
    assert ribbon(rounds, 100) == [("▁▂▃▄▅▆▇█", "model")]
    assert ribbon(rounds, 3) == [("▆▇█", "model")]
    mixed = ribbon([plain(), round_of(3, 1), plain()], 9)
    assert mixed == [("▁", "off"), ("█", "model"), ("▁", "off")]
    draft, spent = Draft((7, 7), (0.5, 0.5), "model"), Spent(draft_s=1, verify_s=2, other_s=1)
    shares = split([Round(draft, Verdict(1, 8), (7, 8), spent)] * 5)
    assert shares == [0.25, 0.5, 0.25]
    assert split_bar(shares, 8) == [("██", "draft"), ("▒▒▒▒", "verify"), ("░░", "other")]
    assert (ribbon([], 9), split([])) == ([], None)
    for width in range(1, 40):
        assert len(text_of(split_bar([1 / 3, 1 / 3, 1 / 3], width))) == width


UNKNOWN = "Average gain not known yet: 0 of 5 drafted answers since this chat loaded the model."


def test_a_call_keeps_the_blanks_in_its_texts() -> None:
    call = ToolCall("1", "write", '{\n  "text": "a   b"\n}')
    assert call_line(call) == '→ write { "text": "a   b" }'


def test_stats_show_speed_ups_drafts_and_what_the_policy_notes() -> None:
    nothing = ["Nothing measured yet: ask something first."]
    assert stats_lines(None, 80) == stats_lines(exchange(), 80) == nothing
    assert stats_lines(None, 80, resumed=True)[0].startswith("No rounds are kept of these answers")
    done = exchange(rounds=[plain(0.02), round_of(3, 2, 0.05)] * 8)
    assert stats_lines(done, 80)[0] == "rounds    all 16 · 2.00 tokens per round"
    note = "drafting is off: it would cost 8 % here"
    counts = AcceptanceStats(rounds=16, drafted=24, accepted=16)
    gain = Gain(1.14, 1.0, 0.02)
    done.finished = finished(draft_note=note, gain=gain, acceptance=counts)
    lines = stats_lines(done, 80)
    assert lines[0] == "drafting  \u00d71.14 (1.10 to 1.19)"
    unknown = finished(acceptance=counts, no_gain="too short")
    words = "drafting  gain not known yet: too short"
    assert stats_lines(replace(done, finished=unknown), 80)[0] == words
    assert status(done, None, 0)[0] == "20.0 tokens/s · drafting \u00d71.1"
    assert "drafts    ■ model: 16 of 24 accepted (67%)" in lines
    assert lines[-2:] == [note, UNKNOWN]
    draft = Draft((7, 7), (0.5,) * 2, "model", alternatives=((8, 9),) * 2, branches=(1, 0))
    caught = Round(draft, Verdict(0, 8, branch=8), (8, 8), Spent(verify_s=0.02))
    branched = stats_lines(exchange(rounds=[plain(), caught]), 80)
    assert any("accepted (0%), and 1 of 2 second choices" in each for each in branched)
    assert any(each.startswith("time      █ draft model ") for each in branched)
    looked_up = Round(
        Draft((7,), (0.5,), "lookup"), Verdict(1, 8), (7, 8), Spent(draft_s=0.01, verify_s=0.02)
    )
    lines = stats_lines(exchange(rounds=[plain(), looked_up]), 80)
    assert any(each.startswith("time      █ drafting 2") for each in lines), "it has no model"
    done.finished = finished(no_drafting="no drafting: slower here")
    assert stats_lines(done, 80)[-2] == "No drafting: slower here."
    done = exchange(rounds=[plain(), round_of(3, 2)] * 100)
    for width in (20, 40, 80, 120):
        bars = [line for line in stats(done, width) if {"off", "verify"} & {m for _, m in line}]
        assert bars
        assert all(len(text_of(bar)) <= width or "large model" in text_of(bar) for bar in bars)
        assert any(f"the last {min(width, 72)} of 200" in each for each in stats_lines(done, width))


def test_stats_say_what_a_pass_over_a_draft_takes_and_confirms() -> None:
    # Of 7 drafted tokens 6 are accepted, and yet nothing is gained: the pass costs as much as what it confirms.
    rounds = [plain(0.02), round_of(7, 6, 0.14)] * 3
    line = "passes    one over 8 tokens takes 7.0 plain ones here · confirms 7.0"
    little = finished(gain=Gain(1.0, 1.0, 0.02))
    assert line in stats_lines(exchange(rounds=rounds, done=little), 80)
    for done in (None, finished(), finished(gain=Gain(1.5, 1.0, 0.02))):  # nothing to explain
        assert line not in stats_lines(exchange(rounds=rounds, done=done), 80)
    disturbed = [*rounds, plain(0.9), round_of(3, 1, 9.0), round_of(7, 3, 0.14), plain(0.02)]
    line = "passes    one over 8 tokens takes 7.0 plain ones here · confirms 5.4"
    assert line in stats_lines(exchange(rounds=disturbed, done=little), 80)
    for few in (rounds[:5], [round_of(7, 6)] * 9, [plain()] * 9, [plain(0.0), round_of(3, 1)] * 9):
        lines = stats_lines(exchange(rounds=few, done=little), 80)
        assert not any("plain ones" in each for each in lines)


def test_what_drafting_gained_has_an_interval_once_there_is_enough() -> None:
    for ratios, told in (
        ([1.2] * 4, "Average gain not known yet: 4 of 5 drafted answers since this chat loaded the model."),
        ([1.1, 1.2, 1.3] * 4, "Drafting \u00d71.20 (1.15 to 1.26) over 12 drafted answers since this chat loaded the model."),
        ([0.8, 1.3] * 4, "Drafting \u00d71.05 (0.85 to 1.30) over 8 drafted answers since this chat loaded the model, no clear difference."),
        ([0.8, 0.9] * 4, "Drafting \u00d70.85 (0.81 to 0.90) over 8 drafted answers since this chat loaded the model."),
    ):  # fmt: skip
        assert average_line([Gain(each, 1.0, 0.02) for each in ratios]) == told


def test_the_status_line_gives_up_the_bar_before_the_figures_and_the_meter_last() -> None:
    done, why = exchange(), "no drafting: nothing to look up"
    done.finished = finished(tokens_per_s=20.0)
    speed, meter = "20.0 tokens/s", "context 50% of 4000 ████░░░░"
    forms = [f"{speed} · {meter}", f"{speed} · {meter[:-9]}", f"{speed} · context 50%", meter[:11]]
    assert status(done, 4000, 2000)[1:] == forms
    assert status(done, None, 0)[-1] == speed
    done.finished = msgspec.structs.replace(done.finished, no_drafting=why)
    assert status(done, 4000, 2000) == [f"{speed} · {why} · {meter}", *forms]
    shares = (0, 2000, 3999, 4800)
    assert [status(None, 4000, each)[0].count("█") for each in shares] == [0, 4, 7, 8]
