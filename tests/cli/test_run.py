"""`localspec run` on real weights: what it prints where, and what its options do."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.telemetry.log import read_texts
from tests.cli.command import PLAIN, answer, assert_one_complaint, localspec, started, succeed
from tests.support.machines import with_what_is_known
from tests.support.media import picture_file

pytestmark = [pytest.mark.usefixtures("smollm2_path")]

# For texts that are compared nothing is drafted, so that all passes have one width and round alike.
STORY = ("--raw", "Once upon a time", "--draft", "off", "--max-tokens", "24")
GREEDY = ("--temperature", "0")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"], "additionalProperties": False}  # fmt: skip


def figures(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    done = answer("--json", *arguments, stdin=stdin)
    assert done.err == ""
    assert done.out.count("\n") == 1
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.fixture(scope="module")
def story(smollm2_path: object) -> dict[str, Any]:
    """The likeliest story."""
    return figures(*STORY, *GREEDY)


@pytest.fixture(scope="module")
def counting(smollm2_path: object) -> dict[str, Any]:
    """A text in which lookup finds what to draft."""
    counted = "1, 2, 3, 4, 5, 6, 7, 8, 9. " * 4
    return figures("--raw", counted, "--draft", "lookup", "--max-tokens", "40", *GREEDY)


def test_a_fresh_seed_is_reported_and_gives_the_same_text_again(counting: dict[str, Any]) -> None:
    fresh = figures(*STORY)
    again = answer(*STORY, "--seed", str(fresh["seed"]))
    assert again.out == f"{fresh['text'].removesuffix(chr(10))}\n"
    first, tokens, *rest = again.err.splitlines()[-1].split(" · ")
    assert first == "localspec: smollm2-135m"
    assert tokens == f"{fresh['usage']['completion_tokens']} tokens"
    assert rest[-1] == f"seed {fresh['seed']}"
    assert any("no drafting" in each for each in rest)
    assert fresh["seed"] != counting["seed"]


def test_the_figures_of_json_agree(counting: dict[str, Any]) -> None:
    tokens = counting["usage"]["completion_tokens"]
    assert (counting["stop_reason"], tokens) == ("length", 40)
    speculation, timings = counting["speculation"], counting["timings"]
    assert speculation["reason"].startswith("on: lookup drafted in ")
    assert 0 < speculation["accepted"] <= speculation["drafted"]
    assert speculation["accepted"] + speculation["rounds"] == tokens - 1  # prefill gives the first
    rate = speculation["accepted"] / speculation["drafted"]
    assert speculation["acceptance_rate"] == pytest.approx(rate, abs=1e-6)
    length = (tokens - 1) / speculation["rounds"]
    assert speculation["mean_acceptance_length"] == pytest.approx(length, abs=1e-6)
    plain, lookup = speculation["by_drafter"]["off"], speculation["by_drafter"]["lookup"]
    for count in ("rounds", "drafted", "accepted"):
        assert plain[count] + lookup[count] == speculation[count], count
    # Rounds in which lookup found nothing were plain ones.
    assert (plain["drafted"], plain["mean_acceptance_length"]) == (0, 1.0)
    stages = [timings[f"{stage}_s"] for stage in ("draft", "verify", "sample", "other")]
    assert min(stages) >= 0
    assert sum(stages) == pytest.approx(timings["decode_s"], abs=1e-5)
    assert 0 < timings["prefill_s"] <= timings["first_token_s"]


def test_a_stop_string_ends_the_answer_and_the_prompt_may_come_from_stdin(
    story: dict[str, Any],
) -> None:
    stop = story["text"][10:14]
    words = ("--raw", "-", *STORY[2:], *GREEDY, "--stop", "~~~", "--stop", stop)
    cut = figures(*words, stdin=b"Once upon a time\n")
    assert cut["stop_reason"] == "stop_string"
    assert cut["text"] == story["text"][: story["text"].index(stop)]


@pytest.mark.slow
def test_a_saved_answer_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path, "blobs")))
    usual = ("--max-tokens", "4", "--draft", "off")
    figures("Hello", *usual)
    assert not (tmp_path / "history").exists()
    first = figures("Hello", "--keep", *usual)
    alone = figures("And him?", "-c", "--no-keep", *usual)
    second = figures("And you?", "-c", *usual)
    counts = [each["usage"]["prompt_tokens"] for each in (first, alone, second)]
    assert counts[0] < counts[1] == counts[2], "what is not kept is of no conversation"


@pytest.mark.slow
def test_a_picture_is_seen_saved_and_there_after_a_kill(
    seeing_models: Callable[[str], tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, encoder = seeing_models("tiles")
    data = tmp_path / "data"
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(data))
    for name, content in (("a.png", picture_file(4)), ("b.png", picture_file(9))):
        (tmp_path / name).write_bytes(content)
    first, second = (f"-f{tmp_path / name}" for name in ("a.png", "b.png"))
    model = ("--target", str(target), "--mmproj", str(encoder), "--draft", "off", "--own")
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "text")
    monkeypatch.setenv("LOCALSPEC_STORE", "true")
    usual = (*model, *GREEDY, "--max-tokens", "8")
    words, one, other, both, piped = (
        figures(*usual, *flags, "What is this?", stdin=stdin)
        for flags, stdin in (
            ((), b""),
            ((first,), b""),
            ((second,), b""),
            ((first, second), b""),
            (("-f", "-"), picture_file(4)),
        )
    )
    assert piped["text"] == one["text"]
    assert len({each["text"] for each in (words, one, other)}) == 3
    counts = [each["usage"]["prompt_tokens"] for each in (words, one, other, both)]
    assert counts[3] == counts[1] + counts[2] - counts[0] > counts[1] > counts[0]
    long = ("run", *PLAIN, *model, *GREEDY, "--keep", first, "-n", "900", "What is this?")
    with started(*long) as process:
        assert process.stdout.read(5)
        process.kill()
    # What had come of the answer is kept, and goes with the next question.
    again = figures(*usual, "-c", "1", second, "What is this?")
    assert again["usage"]["prompt_tokens"] > other["usage"]["prompt_tokens"]
    more = figures(*usual, "-c", "1", "And now?")
    assert more["usage"]["prompt_tokens"] > again["usage"]["prompt_tokens"] + 8
    refused = localspec("run", "-q", *PLAIN, *usual, "--mmproj", "off", "-c", "1", "And now?")
    assert_one_complaint(refused, 2, "text only")
    files = {each: each.read_bytes() for each in data.rglob("*") if each.is_file()}
    for content in (picture_file(4), picture_file(9)):
        forms = (content[1000:1040], base64.b64encode(content[999:1101]))
        having = [path for path, raw in files.items() if any(each in raw for each in forms)]
        assert {path.parent.name for path in having} == {"media"}
    assert len([*read_texts(data / "telemetry", 0.0)]) == 1, "of words alone"


@pytest.mark.slow
def test_what_was_cut_off_is_printed_and_has_a_code_of_its_own() -> None:
    words = ("run", "demo", *PLAIN, "--code", "Write a long Python program.")
    done = localspec(*words, "-n", "12")
    assert (done.code, bool(done.out)) == (6, True)
    assert "incomplete: cut off at --max-tokens" in done.err.splitlines()[-1]
    whole = localspec(*words, "--regex", "```\nx = 1\n```")
    assert (whole.code, whole.out) == (0, "x = 1\n")
    flags = ("--json-schema", json.dumps(SCHEMA), "--seed", "3", "--threads", "1")
    schema = ("run", *PLAIN, "Where is the Eiffel tower?", *flags)
    assert set(json.loads(succeed(*schema).out)) == {"city"}
    for more, told in (((), True), (("--quiet",), False)):
        cut = localspec(*schema, "--max-tokens", "3", *more)
        assert (cut.code, "incomplete" in cut.err, bool(cut.err)) == (6, told, told)


TEA = ("run", *PLAIN, "--draft", "off", "--regex", r"Tea \[1\], water \[5\]")
TEXT = "Tea [1], water [5]"


@pytest.fixture
def model(tmp_path: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A data directory with an index, and flags that name the model by its path."""
    (tmp_path / "notes").mkdir()
    monkeypatch.chdir(tmp_path / "notes")
    Path("tea.md").write_text("# Tea\n\nGreen tea is brewed at 71 degrees for three minutes.\n")
    Path("coffee.md").write_text("# Coffee\n\nEspresso needs nine bars of pressure.\n")
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    assert localspec("index", "add", ".", "-n", "notes").code == 0
    return "--target", str(smollm2_path)


@pytest.mark.slow
def test_an_answer_has_its_passages_and_its_citations(model: tuple[str, str]) -> None:
    question = "At how many degrees is green tea brewed?"
    done = succeed(*TEA, "--json", "--docs", "notes", question, *model)
    document = json.loads(done.out)
    assert document["text"] == TEXT
    assert document["passages"] == [{"number": 1, "where": "tea.md:1-3", "cited": True}]
    assert document["unknown_citations"] == [5]
    done = localspec(*TEA, "@notes How many bars?", *model)
    assert (done.code, done.out) == (0, f"{TEXT}\n"), done.err
    cited, unknown, _ = done.err.splitlines()[-3:]
    assert cited == "localspec: [1] coffee.md:1-3 · cited"
    assert "[5]" in unknown
    complaint = localspec(*TEA, "--docs", "nothing", "Hello")
    assert_one_complaint(complaint, 2, "choose one of notes")
    complaint = localspec(*TEA, "--docs", "notes", "--docs", "others", "Hello")
    assert_one_complaint(complaint, 2, "notes and others are several indexes")
    words = ("run", *PLAIN, "--draft", "off", "--regex", "Tea", "--docs", "notes")
    *read, last, _ = localspec(*words, "Bars and degrees?", *model).err.splitlines()
    assert [each.split(" ", 2)[1] for each in read] == ["[1]", "[2]"]
    assert all(each.endswith(".md:1-3 · read") for each in read)
    assert "cites none of its 2 passages" in last
    missed = localspec(*words, "Zebras?", *model)
    assert "nothing in the index 'notes' fits this question; the model is told so" in missed.err
