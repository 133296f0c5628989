"""What cannot be done: one line that says why, the right code, nothing on stdout, before anything is loaded or written."""

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
TWO = "cannot be combined: give one of them"
# verb and flags; code; words of the message
REFUSED: list[tuple[str, int, tuple[str, ...]]] = [
    ("run --temperature -1 Hi", 2, ("temperature is -1.0", "0 or more")),
    ("run --gpu-layers some Hi", 2, ("'some'", "a number of layers or 'auto'")),
    ("run --stop= Hi", 2, ('a stop string is ""',)),
    ("run --draft model Hi", 2, ("smollm2-135m has no draft model", "--draft-model")),
    ("run --draft model:99 Hi", 2, ("--draft", "from 1 to 63")),
    ("run --pair a --target b Hi", 2, ("pair a and target b", "give one of them")),
    ("run --raw --system x Hi", 2, ("--raw and --system",)),
    ("run --raw --docs x Hi", 2, ("--raw and --docs",)),
    ("run --draft model:3 --raw --tools Hi", 2, ("--raw and --tools",)),
    ("run --raw --think off Hi", 2, ("--raw and --think",)),
    ("run --raw -f x Hi", 2, ("remove -c",)),
    ("run --code --json Hi", 2, ("--code prints nothing else",)),
    ("run -c", 2, ("no conversation to continue",)),
    ("run --tempratur 1 Hi", 2, ("--tempratur", "did you mean --temperature", "run --help`")),
    ("run Hi there", 2, ("'Hi' is not a model", "quotes")),
    ("run deepseek-r1:7b", 2, ("'deepseek-r1:7b' is not a model", "name the model with -m")),
    ("run", 2, ("stdin is empty",)),
    ("run --offline Hi", 3, ("localspec pull smollm2-135m",)),
    ("run --target none.gguf Hi", 3, ("none.gguf", "smollm2-135m")),
    ("run Hi --pair smolm2-135m", 3, ("did you mean smollm2-135m",)),
    ("run --target letter.gguf Hi", 1, ("letter.gguf",)),
    ("run --gate none.toml Hi", 2, ("--gate none.toml cannot be read",)),
    ("run --gate broken.toml Hi", 2, ("broken.toml", "uses")),
    ("run --gate old.toml Hi", 2, ("old.toml", "guard is gone")),
    ("run --tool-rules none.toml Hi", 2, ("none.toml cannot be read",)),
    *((f"{verb} --tool-rules calls.toml", 2, ("--tool-rules calls.toml",)) for verb in ("run Hi", "chat", "serve")),
    *((f"{verb} --draft lokup", 2, ("'lokup': choose off, auto",)) for verb in ("run", "chat", "serve", "mcp", "batch")),
    *(
        (f"{verb} smollm2-135m --{flag} qwen3-4b", 2, (f"model smollm2-135m and --{flag} qwen3-4b", TWO))
        for verb in ("serve", "mcp")
        for flag in ("pair", "target", "model")
    ),
    *((f"run Hi {flag} ,", 2, (flag, "','", "of the form")) for flag in ("--workers", "--device", "--draft-device")),
    ("chat --plain --continue", 2, ("no conversation",)),
    ("chat --plain --system a --persona b", 2, ("--persona",)),
    ("chat --plain --persona pirate", 2, ("pirate",)),
    ("index add none", 2, ("'none' is no file or folder",)),
    ("batch none.jsonl", 2, ("none.jsonl cannot be read",)),
    ("batch .", 2, (". is a directory",)),
    ("batch in.jsonl -o there.jsonl", 2, ("there.jsonl exists", "--resume")),
    ("batch in.jsonl -o no/out.jsonl", 1, ("no/out.jsonl cannot be written",)),
    ("batch in.jsonl --resume", 2, ("stdout cannot be resumed",)),
    ("batch in.jsonl -o in.jsonl --resume", 2, ("in.jsonl is input and output",)),
    ("batch in.jsonl -o there.jsonl --resume", 2, ("is not an output of batch",)),
    ("batch in.jsonl -o out.csv --resume", 2, ("give out.jsonl",)),
    ("batch in.jsonl --template none", 2, ("none cannot be read",)),
    ("batch in.jsonl --template broken", 1, ("broken:1",)),
    ("batch in.jsonl --template t --field f", 2, ("cannot be combined",)),
    ("batch in.jsonl --gate broken.toml", 2, ("broken.toml", "uses")),
    *((f"batch in.jsonl --parallel {count}", 2, ("--parallel",)) for count in ("65", "many")),
    ("bench --modes fast", 2, ("draft mode 'fast'",)),
    ("bench --compare off auto --pairs 4", 2, ("pairs is 4: give 5 to 1000",)),
    ("bench --compare off auto --pairs 1001", 2, ("pairs is 1001: give 5 to 1000",)),
    ("bench --repeat 0", 2, ("repeat is 0: give 1 to 1000",)),
    ("bench --repeat 100000000", 2, ("repeat is 100000000: give 1 to 1000",)),
    ("bench --compare off auto --modes off", 2, ("--compare and --modes",)),
    ("bench --pairs 7", 2, ("--pairs needs --compare",)),
    ("bench --temperature warm", 2, ("temperature 'warm' is not a number",)),
    ("bench --per-workload 0", 2, ("per_workload is 0",)),
    ("bench --prompts mine.jsonl", 2, ("mine.jsonl:2", "prompt")),
    ("bench --prompts none.jsonl", 2, ("none.jsonl cannot be read",)),
    ("pull smolm2-135m", 3, ("did you mean smollm2-135m",)),
    ("rm nobody", 3, ("nobody",)),
    ("show nobody", 3, ("nobody",)),
    ("import none.gguf", 3, ("none.gguf",)),
    ("import letter.gguf", 1, ("letter.gguf",)),
    ("index rm three", 2, ("three",)),
    *((f"index watch --every {every}", 2, ("--every",)) for every in ("nan", "1e300", "0")),
    ("stats", 1, ("no records",)),
    ("stats --since yesterday", 2, ("yesterday",)),
    ("stats --retag 1=poetry", 2, ("poetry",)),
    ("stats --export -", 1, ("with text",)),
    ("stats --export - --drafter guess", 2, ("guess",)),
    ("stop", 1, ("no server is running",)),
    *((f"worker --listen {at}", 2, (f"--listen {at} lets other", "--allow")) for at in ("0.0.0.0:0", "192.0.2.1:50052")),
    *((f"worker --listen {at}", 2, (f"--listen {at!r} is not HOST:PORT",)) for at in ("50052", "[::1]:50052", "localhost:65536")),
    ("worker --listen 127.0.0.1:0 --device NPU7", 2, ("there is no device 'NPU7'",)),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, stored: Path) -> Path:
    stored.mkdir(exist_ok=True)  # what only reads says that it is missing
    for name, text in FILES.items():
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    return tmp_path / "work"


@pytest.mark.parametrize(("words", "code", "told"), REFUSED, ids=lambda each: str(each)[:60])
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    folder: Path, bare_machine: dict[str, str], words: str, code: int, told: tuple[str, ...]
) -> None:
    assert_one_complaint(localspec(*words.split(), env=bare_machine, cwd=folder), code, *told)
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
