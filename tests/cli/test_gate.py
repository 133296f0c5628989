"""`--gate` as its users have it: streams, JSON, records of a batch, the history, exit codes and `stats`."""

import json
import sys
from pathlib import Path

import pytest

from localspec.chat.events import Event, Text, Withheld
from localspec.cli.run import revealed
from localspec.history.archive import History
from localspec.messages import Message
from tests.cli.command import PLAIN, answer, assert_one_complaint, localspec

KEY_FORM = "My key is ghp_[a-c]{36}, ask ann@example\\.org!"
SEEN = "My key is [masked: GitHub token], ask [masked: e-mail address]!"
FORCED = ("--regex", KEY_FORM, "--seed", "1", "--max-tokens", "120")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--gate", "none.toml", "Hi"], "--gate none.toml cannot be read"),
        (["run", "--gate", "broken.toml", "Hi"], "broken.toml: uses is not a known key"),
        (["batch", "--gate", "broken.toml", "in.jsonl"], "broken.toml: uses is not a known key"),
        (["run", "--gate", "old.toml", "Hi"], "old.toml: guard is gone"),
    ],
)
def test_what_is_no_gate_is_said_before_anything_is_loaded(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "broken.toml").write_text("uses = []")
    (tmp_path / "old.toml").write_text('guard = "a-guard"')
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hi"}\n')
    done = localspec(*arguments, cwd=tmp_path)
    assert_one_complaint(done, 2)
    assert complaint in done.err


def test_history_is_shown_through_the_gate_that_is_given_or_set(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    conversation = history.create()
    history.add_user(conversation, None, Message.user("Mail ann@example.org"))
    history.close()
    home = {"LOCALSPEC_DATA_DIR": str(tmp_path)}
    assert "ann@example.org" in localspec("history", "show", env=home).out
    for masked in (
        localspec("history", "show", "--gate", "usual", env=home),
        localspec("history", "show", "--json", env={**home, "LOCALSPEC_GATE": "usual"}),
    ):
        assert masked.code == 0, masked.err
        assert "Mail [masked: e-mail address]" in masked.out
        assert "ann@" not in masked.out


def test_export_says_how_much_is_masked_and_leaves_the_users_words(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    conversation = history.create()
    asked = history.add_user(conversation, None, Message.user("I am ann@example.org"))
    history.begin_reply(conversation, asked, "toy").finish(
        Message.assistant('{"to": "x\\nbob@example.org and ann@example.org"}')
    )
    history.close()
    home = {"LOCALSPEC_DATA_DIR": str(tmp_path)}

    def export(*flags: str) -> tuple[str, str]:
        done = localspec("history", "export", *flags, "1", "a.md", env=home, cwd=tmp_path)
        assert done.code == 0, done.err
        return done.out, (tmp_path / "a.md").read_text()

    mask, all_ = (
        "[masked: e-mail address]",
        "passages masked (e-mail address): --gate off writes all",
    )
    told, text = export()
    assert told == f"a.md\n2 {all_}\n"
    assert text.startswith("# I am ann@example.org\n")
    assert "\n\nI am ann@example.org\n" in text
    assert f'{{"to": "x\\n{mask} and {mask}"}}' in text
    told, text = export("--gate", "usual")
    assert told == f"a.md\n4 {all_}\n"
    assert "@" not in text
    told, text = export("--gate", "off")
    assert told == "a.md\n"
    assert "bob@example.org" in text


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_secrets_are_masked_on_every_way_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = answer("Hi", "--gate", "usual", *FORCED)
    assert told.out == f"{SEEN}\n"
    document = json.loads(answer("Hi", "--gate", "usual", "--json", *FORCED).out)
    assert (document["text"], document["stop_reason"]) == (SEEN, "eog")
    drafted = answer("Hi", "--gate", "usual", *FORCED, "--draft", "lookup")
    assert drafted.out == told.out
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hi"}\n')
    record = localspec("batch", *PLAIN, "--gate", "usual", *FORCED, str(tmp_path / "in.jsonl"))
    assert json.loads(record.out)["text"] == SEEN
    assert "ghp_" not in record.out + record.err


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_rule_stops_the_answer_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("use = ['secrets']\naction = 'stop'\n")
    rules = str(tmp_path / "rules.toml")
    # What a rule stopped is no whole answer of the form that was asked for.
    stopped = localspec("run", *PLAIN, "Hi", "--gate", rules, "--json", *FORCED)
    assert stopped.code == 6
    document = json.loads(stopped.out)
    assert document["text"] == "My key is [masked: GitHub token]"
    assert document["stop_reason"] == "gated"
    said = localspec("run", *PLAIN, "Hi", "--gate", rules, *FORCED)
    assert "stopped by a rule of --gate" in said.err
    few = ("--regex", KEY_FORM, "--seed", "1", "--max-tokens", "9")
    cut = localspec("run", *PLAIN, "Hi", "--gate", rules, *few)
    assert cut.code == 6
    assert "ghp_" not in cut.out


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_secrets_in_an_answer_under_a_schema_are_masked_and_it_stays_json() -> None:
    secret = f'x\nghp_{"aB3dE5gH7j" * 4}\nAKIA2E4QRSTUVWXY7Z2A\npassword = "hunterA9b2cQ"'
    schema = json.dumps({"properties": {"c": {"const": secret}}, "required": ["c"]})
    seen = 'x\n[masked: GitHub token]\n[masked: AWS access key]\npassword = "[masked: password]"'
    flags = ("--gate", "usual", "--json-schema", schema, "--seed", "1", "--max-tokens", "200")
    assert json.loads(answer("Hi", *flags).out) == {"c": seen}
    document = json.loads(answer("Hi", *flags, "--json", "--draft", "lookup").out)
    assert json.loads(document["text"]) == {"c": seen}


@pytest.mark.parametrize("shows", [True, False])
def test_run_shows_what_was_withheld_where_the_user_wants_to_see_it(
    monkeypatch: pytest.MonkeyPatch, shows: bool
) -> None:
    wanted = list[str]()

    def wants(rule: str) -> bool:
        wanted.append(rule)
        return shows

    monkeypatch.setattr(sys.modules[revealed.__module__], "_wants_to_see", wants)
    events: list[Event] = [
        Text("Write to "),
        Withheld("e-mail", "ann@example.org", "[masked: e-mail]"),
        Withheld("e-mail", "bob@example.org", "[masked: e-mail]"),
        Text("[masked: e-mail], [masked: e-mail], "),
        Withheld("e-mail", "in a call", "[masked: e-mail]", in_call=True),
        Text("and [masked: e-mail]."),
    ]
    seen = "".join(each.text for each in revealed(iter(events)) if isinstance(each, Text))
    one, two = ("ann@example.org", "bob@example.org") if shows else ("[masked: e-mail]",) * 2
    assert seen == f"Write to {one}, {two}, and [masked: e-mail]."
    assert wanted == ["e-mail", "e-mail"]
