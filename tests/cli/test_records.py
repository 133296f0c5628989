"""`history`, `index` and `stats`: what is kept is listed, searched, masked, exported and wiped."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from localspec.options.recording import Switch
from localspec.plugins.store.token_log import FILE as STORE_FILE
from localspec.plugins.store.token_log import TokenLog
from localspec.telemetry.log import FILE, read_records
from tests.cli.command import PLAIN, Done, assert_one_complaint, localspec, started, succeed
from tests.llama import tiny_models
from tests.support.watched_git import watched_git
from tests.telemetry.talking import recording
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

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


def test_conversations_are_removed_by_number_title_and_age(tmp_path: Path) -> None:
    now = [time.time() - 50 * 86400]
    archive = History(tmp_path / "history", clock=lambda: now[0])
    for days, river in ((50, "Rhine"), (20, "Douro"), (2, "Tejo"), (1, "Minho"), (0, "Sado")):
        now[0] = time.time() - days * 86400
        archive.add_user(archive.create(), None, Message.user(f"{river} it is"))
    archive.close()
    for words, code, says in (
        ((), 2, "give the numbers"), (("1",), 2, "give --yes"), (("9", "--yes"), 1, "no conversation 9"),
        (("Nile", "--yes"), 2, "no conversation 'Nile'"), (("--before", "soon"), 2, "soon"),
        (("--keep-days", "60", "--yes"), 0, "nothing is that old"), (("--keep-days", "-1"), 2, "-1"),
    ):  # fmt: skip
        done = history(tmp_path, "rm", *words)
        assert (done.code, says in done.err) == (code, True), done
    assert "Rhine it is" in history(tmp_path, "rm", "1").err, "what it would remove"
    assert len(history(tmp_path).out.splitlines()) == 5
    assert history(tmp_path, "rm", "Minho", "#3", "3", "--yes").err.endswith(
        "removed 2 conversations\n"
    )
    assert history(tmp_path, "rm", "--before", "4w", "--yes").err.endswith(
        "removed 1 conversation\n"
    )
    assert [line.split()[0] for line in history(tmp_path).out.splitlines()] == ["5", "2"]
    assert history(tmp_path, "rm", "--keep-days", "10", "--yes").code == 0
    assert history(tmp_path, "rm", "--keep-days", "0", "--yes").code == 0
    assert history(tmp_path).err == "no conversations yet\n"
    everything = b"".join(
        each.read_bytes() for each in (tmp_path / "history").iterdir() if each.is_file()
    )
    assert not [each for each in (b"Rhine", b"hine", b"Tejo", b"ado it") if each in everything]


def test_conversations_are_listed_searched_tagged_and_exported(tmp_path: Path) -> None:
    assert history(tmp_path).err == "no conversations yet\n"
    for river in ("Douro", "Tejo"):
        conversation(tmp_path, f"Where is the {river}?", "In Portugal.")
    first, second = history(tmp_path).out.splitlines()
    assert first.startswith("2 ")
    assert second.endswith("Where is the Douro? · toy")
    assert history(tmp_path, "search", "douro").out.startswith("1 ")
    assert history(tmp_path, "search", "nile").err == "nothing matches\n"
    (document,) = json.loads(history(tmp_path, "list", "-n", "1", "--json").out)
    assert (document["number"], document["messages"], document["tags"]) == (2, 2, [])
    assert history(tmp_path, "tag", "1", "river", "long").out == "long river\n"
    assert history(tmp_path, "tag", "1", "--remove", "long").out == "river\n"
    assert "#river" in history(tmp_path, "search", "tag:river").out
    assert "## Assistant\n\nIn Portugal.\n" in history(tmp_path, "show").out
    assert "Tejo" in history(tmp_path, "show", "Where is the T").out
    assert json.loads(history(tmp_path, "show", "#1", "--json").out)["pair"] == "toy"
    history(tmp_path, "export", "2", "tejo.json")
    assert json.loads((tmp_path / "tejo.json").read_text())["title"] == "Where is the Tejo?"
    kept = (tmp_path / "tejo.json").read_bytes()
    refused = history(tmp_path, "export", "1", "tejo.json")
    assert_one_complaint(refused, 2, "name another file, or give --force")
    assert (tmp_path / "tejo.json").read_bytes() == kept
    assert history(tmp_path, "export", "1", "tejo.json", "--force").code == 0
    assert "Douro" in (tmp_path / "tejo.json").read_text()
    printed = history(tmp_path, "export", "1", "-")
    assert printed.out.startswith("# Where is the Douro?\n")
    assert not (tmp_path / "-").exists()
    for name, code in (("x", 2), ("9", 1)):
        done = history(tmp_path, "show", name)
        assert_one_complaint(done, code, name)


def test_a_gate_masks_what_is_shown(tmp_path: Path) -> None:
    conversation(tmp_path, "Mail ann@example.org", "Sent.")
    assert "ann@example.org" in history(tmp_path, "show").out
    for words, variables in [(("--gate", "usual"), {}), (("--json",), {"LOCALSPEC_GATE": "usual"})]:
        masked = history(tmp_path, "show", *words, **variables)
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


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "My Notes").mkdir()
    (tmp_path / "My Notes" / "tea.md").write_text("# Tea\n\nGreen tea needs eighty degrees.\x1b[2J")
    (tmp_path / "My Notes" / "picture.png").write_bytes(b"\0")
    return tmp_path / "My Notes"


def test_an_index_without_a_name_is_named_after_its_folder_alone(
    place: dict[str, str], notes: Path, tmp_path: Path
) -> None:
    def add(*words: str) -> Done:
        return localspec("index", "add", *words, env=place, cwd=tmp_path)

    for folder in ("日本語", "Übung", "हिन्दी", "other/My Notes"):
        shutil.copytree(notes, tmp_path / folder)
        name = Path(folder).name.casefold()
        if folder != "other/My Notes":
            assert add(folder).err.startswith(f"localspec: {name}: 1 file")
    assert add("My Notes").code == 0
    assert_one_complaint(add("other/My Notes"), 2, "the index my-notes is of ", "name another")
    assert add("other/My Notes", "-n", "my-notes").code == 0
    assert add("other/My Notes").code == 0, "it is of both now"
    assert_one_complaint(add("/"), 2, "no index can be named after /: name one with -n NAME")


def test_a_folder_is_indexed(place: dict[str, str], notes: Path, tmp_path: Path) -> None:
    added = localspec("index", "add", ".", env=place, cwd=notes)
    assert (added.code, added.out) == (0, "")
    assert (
        added.err
        == f"localspec: my-notes: 1 file, 1 passage (1 added, 1 not text)\nlocalspec: not text: {notes / 'picture.png'}\n"
    )
    found = localspec("index", "search", "green", "tea", env=place, cwd=notes)
    assert found.out == "tea.md:1-3  Tea\n    # Tea Green tea needs eighty degrees.?[2J\n"
    (notes / "tea.md").write_text("Tea or coffee? " * 60 + "The Samowar brews both.")
    localspec("index", "update", env=place)
    shown = localspec("index", "search", "samowars", "tea", env=place).out
    assert "    … " in shown
    assert "The Samowar brews both." in shown, "where most words are"
    (notes / "tea.md").write_text("Black tea needs ninety degrees.")
    assert "(1 changed, 1 not text)" in localspec("index", "update", env=place).err
    (document,) = json.loads(localspec("index", "search", "tea", "--json", env=place).out)
    assert document["path"] == str(notes / "tea.md")
    assert (document["first"], document["text"]) == (1, "Black tea needs ninety degrees.")
    (status,) = json.loads(localspec("index", "status", "--json", env=place).out)
    assert (status["name"], status["files"], status["added"]) == ("my-notes", 1, [str(notes)])
    assert localspec("index", "add", str(notes), "-n", "two", env=place).code == 0
    complaint = localspec("index", "search", "tea", env=place)
    assert_one_complaint(complaint, 2, "choose one of my-notes, two, with -n NAME")
    complaint = localspec("index", "update", env=place)
    assert_one_complaint(complaint, 2, "two, `localspec index update NAME`")
    listed = localspec("index", env=place).out
    for each in ("list", "ls", "status"):
        assert localspec("index", each, env=place).out == listed
    assert_one_complaint(localspec("index", "serach", env=place), 2, "did you mean search?")
    assert localspec("index", "search", "tea", "-n", "two", env=place).code == 0
    (tmp_path / "data" / "index" / "two.db").write_bytes(b"something else" * 99)
    damaged = localspec("index", "search", "tea", "-n", "two", env=place)
    assert_one_complaint(damaged, 1, "`localspec index rm two`")
    rest = localspec("index", "status", env=place)
    assert (rest.code, rest.out.split()[0], rest.out.count("\n")) == (1, "my-notes", 1)
    assert "`localspec index rm two`" in rest.err
    for name in ("two", "my-notes"):
        assert localspec("index", "rm", name, env=place).code == 0
    assert "no index yet" in localspec("index", "status", env=place).err
    assert (notes / "tea.md").exists()


def test_vectors_are_kept_up_to_date(place: dict[str, str], notes: Path, tmp_path: Path) -> None:
    def index(*words: str, **variables: str) -> Done:
        return localspec("index", *words, env={**place, **variables}, cwd=notes)

    assert_one_complaint(index("add", ".", "--vectors", "nothing"), 3, "'nothing'")
    assert "no index yet" in index("status").err
    model = tiny_models.write_llama(tmp_path / "tiny.gguf", pooling=1)
    assert localspec("import", str(model), env=place).code == 0
    added = index("add", ".", "--vectors", "tiny")
    assert (added.code, added.out) == (0, "")
    assert "my-notes: 1 new vector by tiny\n" in added.err
    assert "  vectors by tiny  " in index("status").out
    (notes / "tea.md").write_text("Black tea needs ninety degrees.")
    assert "1 new vector by tiny" in index("update").err
    assert index("add", ".", "-n", "old").code == 0
    assert " vectors" not in index("add", ".", "-n", "old", LOCALSPEC_VECTORS="tiny").err
    assert "new: 1 new vector" in index("add", ".", "-n", "new", LOCALSPEC_VECTORS="tiny").err
    assert localspec("rm", "tiny", env=place).code == 0
    left = index("search", "tea", "-n", "my-notes")
    assert "tea.md" in left.out
    assert "localspec pull tiny" in left.err
    again = index("add", ".", "--vectors", "off")
    assert (again.code, " vectors" in again.err) == (0, False)
    by_name = {each["name"]: each for each in json.loads(index("status", "--json").out)}
    assert by_name["my-notes"]["vectors"] is None


def test_watching_takes_in_what_changes(place: dict[str, str], notes: Path) -> None:
    assert localspec("index", "add", ".", env=place, cwd=notes).code == 0
    with started("index", "watch", "--every", "1", env=place) as process:
        assert b"1 file, 1 passage" in process.stderr.readline()
        assert b"not text: " in process.stderr.readline()
        (notes.parent / "new.md").write_text("Cocoa is stirred.")
        (notes.parent / "new.md").rename(notes / "new.md")  # it is never seen half written
        assert b"(1 added" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert "new.md" in localspec("index", "search", "cocoa", env=place).out


def test_git_is_not_started(place: dict[str, str], notes: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", notes], check=True)
    path, note = watched_git(tmp_path)
    done = localspec("index", "add", str(notes), env={**place, "PATH": path})
    assert "1 passage (" in done.err
    assert not note.exists()


POEM = "Write a poem about rain."


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    config = {"LOCALSPEC_CONFIG_DIR": str(tmp_path / "config")}
    return {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_TELEMETRY": "on", **config}


def test_what_is_recorded_is_a_setting(elsewhere: dict[str, str]) -> None:
    env = {**elsewhere, "LOCALSPEC_TELEMETRY": ""}
    for words in (("telemetry", "text"), ("store", "on")):
        assert localspec("config", "set", *words, env=env).code == 0
    doctor = localspec("doctor", "--offline", env=env).out
    assert "counts, times and text: 0 MB of 128 MB, kept for 365 days" in doctor
    settings = json.loads(localspec("config", "show", "--json", env=env).out)
    assert (settings["telemetry"]["value"], settings["store"]["value"]) == ("text", True)


@pytest.mark.parametrize("broken", [False, True])
def test_wipe_deletes_the_store(tmp_path: Path, elsewhere: dict[str, str], broken: bool) -> None:
    path = tmp_path / "store" / STORE_FILE
    TokenLog(path, megabytes=2).append("conversation 1", range(1000))
    if broken:
        (tmp_path / "telemetry" / FILE).mkdir(parents=True)
    done = localspec("stats", "--wipe", "--yes", env=elsewhere)
    if broken:
        assert_one_complaint(done, 1, "cannot be wiped")
    else:
        assert (done.code, done.out) == (0, "")
    assert TokenLog(path).figures() == (0, 0)


def test_records_are_shown_exported_and_wiped(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / FILE).write_bytes(b"no record at all, not even nearly" * 99)
    assert_one_complaint(localspec("stats", env=elsewhere), 1)
    refused = localspec("stats", "--wipe", env=elsewhere)
    assert (refused.code, "give --yes" in refused.err) == (2, True)
    assert "deleted all records" in localspec("stats", "--wipe", "--yes", env=elsewhere).err
    assert "no records" in localspec("stats", "--wipe", "--yes", env=elsewhere).err
    with recording(tmp_path / "telemetry") as talk:
        talk.reply(rounds=60, asked=POEM)
    done = succeed("stats", env=elsewhere)
    assert "66 of 144 drafted tokens accepted" in done.out
    assert "creative" not in done.out
    assert "creative" in localspec("stats", "--all", env=elsewhere).out
    assert localspec("stats", "--replies", "5", env=elsewhere).out.split()[0] == "1"
    assert localspec("stats", "--retag", "1=chat", env=elsewhere).code == 0
    assert_one_complaint(localspec("stats", "--retag", "7=code", env=elsewhere), 2)
    document = json.loads(localspec("stats", "--json", "--since", "1d", env=elsewhere).out)
    assert list(document["workloads"]) == ["chat"]
    assert document["total"]["rounds"] == 60
    page = tmp_path / "page.html"
    assert localspec("stats", "--html", str(page), env=elsewhere).out == ""
    assert "by kind of text" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    assert localspec("stats", "--html", str(page), env=elsewhere).code == 0
    page.write_text("<!doctype html>\n<title>My page")
    done = localspec("stats", "--html", str(page), env=elsewhere)
    assert_one_complaint(done, 2, "is not of this command: name another file")
    assert page.read_text().endswith("My page")
    with recording(tmp_path / "telemetry") as talk:
        for _ in range(6):
            talk.reply(rounds=60, asked=POEM)
    assert "it saved" in localspec("stats", env=elsewhere).out


def test_recorded_drafts_are_exported(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with recording(tmp_path / "telemetry", Switch(text=True)) as talk:
        talk.reply(rounds=10, seed=5)
        talk.reply(rounds=10, seed=6)
    archive = History(tmp_path / "history")
    for number, prompt in enumerate((50, 51), 1):  # of the second seed, another prompt
        asked = archive.add_user(archive.create(), None, Message.user("?"))
        reply = archive.begin_reply(number, asked, "toy")
        reply.finish(figures=json.dumps({"seed": 4 + number, "prompt": prompt}))
        archive.mark(reply.message, "bad")
    archive.close()
    done = localspec("stats", "--export", "-", "--context", "8", env=elsewhere)
    rounds = [json.loads(line) for line in done.out.splitlines()]
    assert len(rounds) == 16
    assert {(each["reply"], each["mark"]) for each in rounds} == {(1, "bad"), (2, None)}
    assert {"context_ids", "draft_ids", "accepted", "next_id", "next_is"} <= rounds[0].keys()
    file = tmp_path / "proposals.jsonl"
    written = localspec("stats", "--export", str(file), "--context", "8", env=elsewhere)
    assert (written.code, written.out, file.read_text()) == (0, "", done.out)
    assert file.stat().st_mode & 0o777 == 0o600
    assert localspec("stats", "--export", str(file), env=elsewhere).code == 0
    file.write_text("my own")
    assert_one_complaint(
        localspec("stats", "--export", str(file), env=elsewhere), 2, "another file"
    )
    assert file.read_text() == "my own"
    localspec("stats", "--wipe-text", "--yes", env=elsewhere)
    assert_one_complaint(localspec("stats", "--export", "-", env=elsewhere), 1)
    assert localspec("stats", env=elsewhere).code == 0


def test_a_recorded_answer(smollm2_path: Path, elsewhere: dict[str, str], tmp_path: Path) -> None:
    flags = ("--target", str(smollm2_path), "-n", "24", "--draft", "lookup", "--json", *PLAIN)
    succeed("run", *flags, "Hi", env={**elsewhere, "LOCALSPEC_TELEMETRY": "off"})
    assert not (tmp_path / "telemetry").exists()
    done = succeed("run", *flags, "Say xyzzyplugh and xyzzyplugh.", env=elsewhere)
    document = json.loads(done.out)
    assert document["workload"] in {"chat", "creative"}
    files = b"".join(each.read_bytes() for each in (tmp_path / "telemetry").iterdir())
    (reply,) = read_records(tmp_path / "telemetry").replies.values()
    assert reply.tokens == document["usage"]["completion_tokens"]
    first = document["text"].split()[0]
    assert b"xyzzyplugh" not in files
    assert first.encode() not in files or len(first) < 5


def test_the_kind_of_a_text_is_the_same_in_json_and_in_the_records(
    smollm2_path: Path, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    """A file that comes with a question is a part of it."""
    file = tmp_path / "sizes.py"
    file.write_text("def half(size: int) -> int:\n    return size // 2\n" * 9)
    flags = ("--target", str(smollm2_path), "-n", "4", "--draft", "off", "--json", *PLAIN)
    asked = ("-f", str(file), "Rename the function half to part. Print the whole file.")
    document = json.loads(succeed("run", *flags, *asked, env=elsewhere).out)
    (reply,) = read_records(tmp_path / "telemetry").replies.values()
    assert document["workload"] == reply.workload


def test_a_damaged_history_is_named_by_every_command(tmp_path: Path) -> None:
    place = {"LOCALSPEC_DATA_DIR": str(tmp_path)}
    for name in ("history/history.db", "telemetry/replies.db"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"no database " * 1000)
    for words in ("run -c Hi", "run -c 3 Hi", "chat --plain -c", "history", "history show"):
        done = localspec(*words.split(), env=place)
        assert_one_complaint(done, 1, "history is damaged", "move", "away to start again")
    done = localspec("doctor", "--offline", env=place)
    told = " ".join(done.out.split())
    assert (done.code, told.count("is damaged (file is not a database)")) == (1, 2)
