"""`localspec history`, and what it masks."""

import json
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from tests.cli.command import Done, assert_one_complaint, localspec

SECRET = '{"to": "x\\nbob@example.org and ann@example.org"}'
MASK = "[masked: e-mail address]"


def history(folder: Path, *words: str, **variables: str) -> Done:
    env = {"LOCALSPEC_DATA_DIR": str(folder), **variables}
    return localspec("history", *words, env=env, cwd=folder)


def conversation(folder: Path, question: str, answer: str) -> None:
    archive = History(folder / "history")
    number = archive.create(pair="toy")
    asked = archive.add_user(number, None, Message.user(question))
    archive.begin_reply(number, asked, "toy").finish(Message.assistant(answer))
    archive.close()


def test_conversations_are_listed_searched_tagged_and_exported(tmp_path: Path) -> None:
    assert history(tmp_path).err == "no conversations yet\n"
    assert_one_complaint(history(tmp_path, "show"), 2)
    for river in ("Douro", "Tejo"):
        conversation(tmp_path, f"Where is the {river}?", "In Portugal.")
    first, second = history(tmp_path).out.splitlines()
    assert first.startswith("2 ")
    assert second.endswith("Where is the Douro? · toy")
    assert history(tmp_path, "search", "douro").out.startswith("1 ")
    assert history(tmp_path, "search", "nile").err == "nothing matches\n"
    assert history(tmp_path, "list", "-n", "1").out.count("\n") == 1
    document = json.loads(history(tmp_path, "list", "--json").out)[0]
    assert (document["number"], document["messages"], document["tags"]) == (2, 2, [])
    assert history(tmp_path, "tag", "1", "river", "long").out == "long river\n"
    assert history(tmp_path, "tag", "1", "--remove", "long").out == "river\n"
    assert "#river" in history(tmp_path, "search", "tag:river").out
    assert "## Assistant\n\nIn Portugal.\n" in history(tmp_path, "show").out
    assert "Douro" in history(tmp_path, "show", "#1").out
    assert "Tejo" in history(tmp_path, "show", "Where is the T").out
    assert json.loads(history(tmp_path, "show", "1", "--json").out)["pair"] == "toy"
    path = tmp_path / history(tmp_path, "export", "1").out.strip()
    assert path.read_text().startswith("# Where is the Douro?")
    history(tmp_path, "export", "2", "tejo.json")
    assert json.loads((tmp_path / "tejo.json").read_text())["title"] == "Where is the Tejo?"
    for name, code in (("x", 2), ("9", 1)):
        done = history(tmp_path, "show", name)
        assert_one_complaint(done, code)
        assert name in done.err


@pytest.mark.parametrize(
    ("words", "variables"),
    [(("--gate", "usual"), {}), (("--json",), {"LOCALSPEC_GATE": "usual"})],
)
def test_a_gate_masks_what_is_shown(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    conversation(tmp_path, "Mail ann@example.org", "Sent.")
    assert "ann@example.org" in history(tmp_path, "show").out
    masked = history(tmp_path, "show", *words, **variables)
    assert masked.code == 0, masked.err
    assert f"Mail {MASK}" in masked.out
    assert "ann@" not in masked.out


@pytest.mark.parametrize(
    ("flags", "told", "masked", "left"),
    [
        ((), "2 passages masked", [f'{{"to": "x\\n{MASK} and {MASK}"}}'], ["I am ann@example.org"]),
        (("--gate", "usual"), "4 passages masked", [MASK], []),
        (("--gate", "off"), "", [], ["I am ann@example.org", "bob@example.org"]),
    ],
)
def test_an_export_masks_answers_and_counts_what_is_masked(
    tmp_path: Path, flags: tuple[str, ...], told: str, masked: list[str], left: list[str]
) -> None:
    conversation(tmp_path, "I am ann@example.org", SECRET)
    done = history(tmp_path, "export", *flags, "1", "a.md")
    assert done.code == 0, done.err
    assert done.out.startswith("a.md\n")
    assert (told in done.out) if told else done.out == "a.md\n"
    text = (tmp_path / "a.md").read_text()
    assert all(each in text for each in (*masked, *left))
    assert ("@" in text) is bool(left)
    assert ("bob@" in text) is (flags == ("--gate", "off"))
