"""What cannot be done: one line that says why, the right code, nothing on stdout, before anything is loaded or written."""

import os
import re
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, assert_one_complaint, localspec, started, succeed
from tests.models.gguf_builder import TOKENS, model_file
from tests.plugins.workers.workers import free_address, require_rpc

pytestmark = pytest.mark.slow

WITHOUT_STDOUT = ("sh", "-c", 'exec "$@" >&-', "sh")
WITHOUT_STDERR = ("sh", "-c", 'exec "$@" 2>&-', "sh")
FILES = {
    "there.jsonl": "mine\n",
    "in.jsonl": '{"prompt": "Hi"}\n',
    "broken": "{{",
    "t": "{{ prompt }}",
    "broken.toml": "uses = []",
    "old.toml": 'guard = "a-guard"',
    "calls.toml": "at_most = 'many'",
    "letter.gguf": "Dear reader,\n" * 100,
    "mine.jsonl": '{"workload": "chat", "prompt": "Hi"}\n{"workload": "chat"}\n',
    "data": "no folder",
    "settings/models.toml": "[pairs.mine]\n\ntarget = 3\n",
    "rules/tools.toml": "permit = []",
}
REFUSED = Path(__file__).with_name("refused.txt")
"""Commands, and below each the code and the line with which it ends; LOCALSPEC_UPDATE_SNAPSHOTS=1 writes those of now."""
_LINES = REFUSED.read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path, stored: Path) -> Path:
    stored.mkdir(exist_ok=True)  # what only reads says that it is missing
    for name, text in FILES.items():
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    return tmp_path / "work"


@pytest.mark.parametrize("at", range(0, len(_LINES), 2), ids=lambda at: _LINES[at][2:60])
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    folder: Path, bare_machine: dict[str, str], tmp_path: Path, at: int
) -> None:
    done = localspec(*_LINES[at].split()[1:], env=bare_machine, cwd=folder)
    assert_one_complaint(done, done.code)
    said = f"{done.code} {done.err.removeprefix('localspec: ').rstrip()}"
    said = re.sub("(?<=here: choose one of ).*", "<devices>", said.replace(str(tmp_path), "<tmp>"))
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        lines = REFUSED.read_text().splitlines()
        REFUSED.write_text("\n".join([*lines[: at + 1], said, *lines[at + 2 :]]) + "\n")
    else:
        assert (said, done.code != 0) == (_LINES[at + 1], True)
    left = [each for each in folder.rglob("*") if each.is_file()]
    assert {str(each.relative_to(folder)): each.read_text() for each in left} == FILES


@pytest.mark.parametrize(
    ("variable", "place", "words", "told"),
    [
        ("LOCALSPEC_DATA_DIR", "data", "run Hi", "LOCALSPEC_DATA_DIR"),
        ("LOCALSPEC_CONFIG_DIR", "settings", "search", "pairs.mine.target must be text, not '3'"),
        ("LOCALSPEC_CONFIG_DIR", "rules", "run --tools Hi", "tools.toml: permit"),
    ],
)
def test_a_wrong_file_of_the_users_own_is_named(
    folder: Path, bare_machine: dict[str, str], variable: str, place: str, words: str, told: str
) -> None:
    (folder / "project").mkdir()
    env = {**bare_machine, variable: str(folder / place)}
    done = localspec(*words.split(), env=env, cwd=folder / "project")
    assert_one_complaint(done, 2, told)


def test_a_folder_with_localspecs_own_files_is_not_opened(tmp_path: Path) -> None:
    """Its rules could be written there, and its conversations read."""
    places = {"LOCALSPEC_DATA_DIR": str(tmp_path / "share/localspec"), "HOME": str(tmp_path)}
    for words in (["run", "--tools", "Hi"], ["chat", "--tools"]):
        done = localspec(*words, cwd=tmp_path, env=places)
        assert_one_complaint(done, 2, "--tools")


def test_stdin_that_is_not_utf8_names_the_byte_and_its_place() -> None:
    for mark in [b"", b"\xef\xbb\xbf"]:
        done = localspec("run", stdin=mark + b"caf\xe9")
        assert_one_complaint(done, 2, "byte 0xe9 at offset 3")
    chat = localspec("chat", "--plain", "--offline", "-m", "demo", stdin=b"\xff\xfe\n")
    assert_one_complaint(chat, 2, "UTF-8")


def test_a_truncated_gguf_is_code_1(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(smollm2_path.read_bytes()[:50_000_000])
    done = localspec("run", "--target", str(path), "Hi")
    assert_one_complaint(done, 1, str(path))


def test_a_draft_model_that_shares_no_tokens_is_code_4(tmp_path: Path) -> None:
    target, draft_model = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(model_file())
    draft_model.write_bytes(model_file(tokens=[f"x{number}" for number in range(len(TOKENS))]))
    done = localspec("run", "--target", str(target), "--draft-model", str(draft_model), "Hi")
    assert_one_complaint(done, 4, "token 0 is '<unk>'", "and 'x0'")


def test_a_worker_that_is_away_and_one_that_is_no_address_are_named() -> None:
    require_rpc()
    gone = free_address()
    for address, told in ((gone, "cannot be reached (Connection refused)"), ("some", "HOST:PORT")):
        done = localspec("run", "-m", "smollm2-135m", "--raw", "Hi", "--workers", address)
        assert_one_complaint(done, 2, address, told)


@pytest.mark.pair
@pytest.mark.usefixtures("smollm2_path", "qwen_target_path")
def test_smollm2_drafts_for_qwen_if_it_is_named() -> None:
    reference = ("--target", "qwen2.5-coder-1.5b", "--draft-model", "smollm2-135m")
    done = succeed("run", *reference, "-n", "1", "Hi")
    assert "the draft model smollm2-135m has another vocabulary: 79.8 % of its tokens" in done.err


@pytest.mark.usefixtures("smollm2_path")
def test_a_reader_who_leaves_ends_the_program_silently_with_141() -> None:
    asked = ("--quiet", "--raw", "Once upon a time", "--max-tokens", "2000")
    with started("run", *PLAIN, *asked) as process:
        assert process.stdout.read(1) != b""
        process.stdout.close()
        assert process.wait(300) == 141
        assert process.stderr.read() == b""


def test_a_closed_stream_is_silent_and_the_code_tells() -> None:
    for arguments in [["run", "Hi"], ["--help"], ["run", "--temperature", "-1"]]:
        done = localspec(*arguments, shell=WITHOUT_STDOUT)
        assert (done.code, done.out, done.err) == (141, "", "")
    done = localspec("run", "--temperature", "-1", "Hi", shell=WITHOUT_STDERR)
    assert (done.code, done.out, done.err) == (2, "", "")


@pytest.mark.usefixtures("smollm2_path")
def test_an_answer_without_stderr_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    options = ("run", *PLAIN, "--quiet", "--max-tokens", "3", "--temperature", "0", "Say hello.")
    done = succeed(*options, shell=WITHOUT_STDERR)
    assert done.out.strip() != ""
    full = ("sh", "-c", 'ulimit -f 0; exec "$@" >answer.txt', "sh")
    done = localspec(*options, shell=full, cwd=tmp_path)
    assert_one_complaint(done, 1, "writing failed (File too large)")
