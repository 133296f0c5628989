"""What cannot be answered: one line that says why, the right code, nothing on stdout."""

from pathlib import Path

import pytest

from tests.cli.command import PLAIN, assert_one_complaint, localspec, started
from tests.models.gguf_builder import TOKENS, model_file

WITHOUT_STDOUT = ("sh", "-c", 'exec "$@" >&-', "sh")
WITHOUT_STDERR = ("sh", "-c", 'exec "$@" 2>&-', "sh")


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("arguments", "value", "advice"),
    [
        (["--temperature", "-1", "Hi"], "temperature is -1.0", "it must be 0 or more"),
        (["--top-p", "nan", "Hi"], "'nan' is not a number", "--top-p"),
        (["--max-tokens", "0", "Hi"], "max_tokens is 0", "it must be 1 or more"),
        (["--draft-length", "999", "Hi"], "draft_length is 999", "it must be from 1 to 63"),
        (["--gpu-layers", "some", "Hi"], "'some'", "a number of layers or 'auto'"),
        (["--stop", "", "Hi"], 'a stop string is ""', "at least one character"),
        (["--draft", "model", "Hi"], "smollm2-135m has no draft model", "--draft-model"),
        (["--pair", "a", "--target", "b", "Hi"], "pair a and target b", "give one of them"),
        (["--raw", "--system", "x", "Hi"], "--raw and --system", "cannot be combined"),
        (["--raw", "--tools", "Hi"], "--raw and --tools", "cannot be combined"),
        (["--draft", "lookup:5", "--raw", "--tools", "Hi"], "--raw and --tools", "combined"),
        (["--draft", "model:3", "--raw", "--tools", "Hi"], "--raw and --tools", "combined"),
        (["--draft", "model:99", "Hi"], "--draft", "it must be from 1 to 63"),
        (["--tempratur", "1", "Hi"], "no option --tempratur", "--temperature"),
        (["--bogus", "Hi"], "no option --bogus", "run --help`"),
        (["Hi", "there"], "'Hi' is not a model", "put quotes around"),
        ([" \n"], "the prompt is empty", "write something"),
        ([], "stdin is empty", "as an argument"),
        (["-"], "stdin is empty", "as an argument"),
    ],
)
def test_a_wrong_command_line_is_code_2(arguments: list[str], value: str, advice: str) -> None:
    done = localspec("run", *arguments)
    assert_one_complaint(done, 2)
    assert value in done.err
    assert advice in done.err


@pytest.mark.parametrize("verb", ["run", "chat", "serve", "mcp", "batch"])
def test_a_draft_mode_that_there_is_not_is_refused_before_anything_is_loaded(verb: str) -> None:
    done = localspec(verb, "--draft", "lokup")
    assert_one_complaint(done, 2)
    assert "draft mode 'lokup': choose off, auto, " in done.err


@pytest.mark.parametrize("verb", ["serve", "mcp"])
@pytest.mark.parametrize("flag", ["pair", "target", "model"])
def test_a_model_and_a_flag_that_names_another_are_refused(verb: str, flag: str) -> None:
    done = localspec(verb, "smollm2-135m", f"--{flag}", "qwen3-4b")
    assert_one_complaint(done, 2)
    wanted = f"model smollm2-135m and --{flag} qwen3-4b cannot be combined: give one of them"
    assert wanted in done.err


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_stdin_that_is_no_utf8_names_the_byte_and_where_it_is(mark: bytes) -> None:
    done = localspec("run", stdin=mark + b"caf\xe9")
    assert_one_complaint(done, 1)
    assert "byte 0xe9 at offset 3" in done.err
    assert "iconv" in done.err


def test_a_missing_file_is_code_3(tmp_path: Path) -> None:
    done = localspec("run", "--target", str(tmp_path / "none.gguf"), "Hi", cold=True)
    assert_one_complaint(done, 3)
    assert str(tmp_path / "none.gguf") in done.err
    assert "smollm2-135m" in done.err


@pytest.mark.parametrize("verb", [["run", "Hi", "--pair"], ["run", "Hi", "--target"], ["pull"]])
def test_an_unknown_name_is_code_3_and_tells_what_may_be_meant(verb: list[str]) -> None:
    done = localspec(*verb, "smolm2-135m")
    assert_one_complaint(done, 3)
    assert "did you mean smollm2-135m" in done.err


def test_a_text_file_named_gguf_is_code_1(tmp_path: Path) -> None:
    path = tmp_path / "letter.gguf"
    path.write_text("Dear reader,\n" * 100)
    done = localspec("run", "--target", str(path), "Hi")
    assert_one_complaint(done, 1)
    assert str(path) in done.err


@pytest.mark.weights
def test_a_truncated_gguf_is_code_1(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(smollm2_path.read_bytes()[:50_000_000])
    done = localspec("run", "--target", str(path), "Hi")
    assert_one_complaint(done, 1)
    assert str(path) in done.err


def test_a_draft_model_that_shares_no_tokens_is_code_4(tmp_path: Path) -> None:
    target, draft_model = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(model_file())
    draft_model.write_bytes(model_file(tokens=[f"x{number}" for number in range(len(TOKENS))]))
    done = localspec("run", "--target", str(target), "--draft-model", str(draft_model), "Hi")
    assert_one_complaint(done, 4)
    assert "token 0 is '<unk>'" in done.err
    assert "and 'x0'" in done.err


@pytest.mark.pair
def test_smollm2_drafts_for_qwen_where_somebody_names_it(
    smollm2_path: Path, qwen_target_path: Path
) -> None:
    assert smollm2_path.exists()
    assert qwen_target_path.exists()
    reference = ("--target", "qwen2.5-coder-1.5b", "--draft-model", "smollm2-135m")
    done = localspec("run", *reference, "-n", "1", "Hi")
    assert done.code == 0, done.err
    assert "the draft model smollm2-135m has another vocabulary: 79.8 % of its tokens" in done.err


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_reader_who_leaves_ends_the_program_silently_with_141() -> None:
    asked = ("--quiet", "--raw", "Once upon a time", "--max-tokens", "2000")
    with started("run", *PLAIN, *asked) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) != b""
        process.stdout.close()
        assert process.wait(300) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize("arguments", [["run", "Hi"], ["--help"], ["run", "--temperature", "-1"]])
def test_stdout_closed_from_the_start_is_a_silent_141(arguments: list[str]) -> None:
    done = localspec(*arguments, shell=WITHOUT_STDOUT)
    assert (done.code, done.out, done.err) == (141, "", "")


def test_without_stderr_the_code_still_tells() -> None:
    done = localspec("run", "--temperature", "-1", "Hi", shell=WITHOUT_STDERR)
    assert (done.code, done.out, done.err) == (2, "", "")


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_without_stderr_there_is_still_an_answer() -> None:
    options = (*PLAIN, "--max-tokens", "3", "--temperature", "0")
    done = localspec("run", *options, "Say hello.", shell=WITHOUT_STDERR)
    assert done.code == 0
    assert done.out.strip() != ""
    assert "localspec:" not in done.out


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_an_answer_that_cannot_be_written_is_code_1(tmp_path: Path) -> None:
    full = ("sh", "-c", 'ulimit -f 0; exec "$@" >answer.txt', "sh")
    options = ("--quiet", "--max-tokens", "3")
    done = localspec("run", *PLAIN, *options, "Say hello.", shell=full, cwd=tmp_path)
    assert_one_complaint(done, 1)
    assert "writing failed (File too large)" in done.err
