"""`localspec check`, and what `search` and `show` tell of pairs, as their users have them: a process, files of their own, and a hub on the loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Done, assert_one_complaint, localspec
from tests.models.gguf_builder import TOKENS, Content, Tensor, build, model_file, model_values
from tests.models.loopback_hub import COMMIT, Fault, HugeFile, LoopbackHub, loopback_hub

LIMIT_BYTES = 20_000_000
PADDED = [*TOKENS, "[PAD6]"]
PADDED_TYPES = [2, 3, 3, 1, 1, 1, 5]


def huge(gigabytes: float, sha256: str = "5" * 64, **changes: Content | None) -> HugeFile:
    """A model of some gigabytes: the header of one, and a promise of the rest."""
    size = int(gigabytes * 1e9)
    weights = Tensor("weights", (size // 128, 16))  # half of it
    return HugeFile(build(model_values(**changes), [weights]), size, sha256)


def wide(gigabytes: float, n_vocab: int) -> HugeFile:
    """A model with a vocabulary of 26 bytes a token."""
    tokens = [f"token-{number:08}" for number in range(n_vocab)]
    return huge(gigabytes, tokens=tokens, token_type=[1] * n_vocab, merges=None)


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with loopback_hub(with_storage=True) as hub:
        hub.files[at("Big", "Big-Q4_K_M.gguf")] = huge(4.5)
        hub.files[at("Big", "Big-Q8_0-00001-of-00002.gguf")] = huge(5, sha256="6" * 64)
        hub.files[at("Big", "Big-Q8_0-00002-of-00002.gguf")] = huge(3, sha256="7" * 64)
        hub.files[at("Big", "mmproj-Big-Q4_K_M.gguf")] = huge(1)
        hub.files[at("Small", "small.Q4_K_M.gguf")] = huge(1.1)
        padded = huge(2.1, tokens=PADDED, token_type=PADDED_TYPES)
        hub.files[at("Small", "small.Q8_0.gguf")] = padded
        yield hub


def at(repo: str, name: str) -> str:
    return f"/owner/{repo}-GGUF/resolve/{COMMIT}/{name}"


@pytest.fixture
def online(hub: LoopbackHub, bare_machine: dict[str, str]) -> dict[str, str]:
    return {**bare_machine, "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "target.gguf").write_bytes(model_file())
    (folder / "padded.gguf").write_bytes(model_file(tokens=PADDED, token_type=PADDED_TYPES))
    (folder / "other.gguf").write_bytes(
        model_file(tokens=["x\n\x1b[31m", *TOKENS[1:3], "x", "y", "z"], eos_token_id=1)
    )
    return folder


def check(folder: Path, *arguments: str, env: dict[str, str]) -> Done:
    return localspec("check", *arguments, env=env, cwd=folder)


@pytest.mark.parametrize(
    ("target", "draft_model", "lines"),
    [
        (
            "target.gguf",
            "./target.gguf",
            [
                "identical: ./target.gguf can draft for target.gguf",
                "  tokens            6 and 6, 100 % overlap",
                "  chat templates    the same",
            ],
        ),
        (
            "padded.gguf",
            "target.gguf",
            [
                "compatible: target.gguf can draft for padded.gguf",
                "  note              vocabularies have 7 and 6 tokens",
            ],
        ),
    ],
)
def test_files_with_one_tokenizer_fit_and_padding_is_said(
    files: Path, bare_machine: dict[str, str], target: str, draft_model: str, lines: list[str]
) -> None:
    done = check(files, target, draft_model, env=bare_machine)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(lines[0])
    assert {*lines} <= {*done.out.splitlines()}


def test_models_with_other_ids_are_usable_across_vocabularies(
    files: Path, bare_machine: dict[str, str]
) -> None:
    (files / "words.gguf").write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    done = check(files, "target.gguf", "words.gguf", env=bare_machine)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "usable across vocabularies: words.gguf can draft for target.gguf\n"
        "  shared            66.7 % of the draft model's tokens are the target's, "
        "expect less to be accepted\n"
        "  use               name it with --draft-model: it is never chosen by itself\n"
        "  first difference  token 5 is 'ab' and 'ba'\n"
    )
    facts = json.loads(check(files, "target.gguf", "words.gguf", "--json", env=bare_machine).out)
    assert (facts["usable"], facts["fits"], facts["verdict"]) == (True, False, "incompatible")
    assert facts["shared_percent"] == pytest.approx(200 / 3)


def test_models_that_do_not_fit_exit_4_and_name_the_first_difference(
    files: Path, bare_machine: dict[str, str]
) -> None:
    done = check(files, "target.gguf", "other.gguf", env=bare_machine)
    assert (done.code, done.err) == (4, "")
    assert r"  first difference  token 0 is '<unk>' and 'x\n\x1b[31m'" in done.out.splitlines()
    assert "33.33 % overlap of number and text, where `shared` counts the text alone" in done.out
    assert "  shared            0.0 % of the draft model's tokens are the target's\n" in done.out


def test_json_says_the_same(files: Path, bare_machine: dict[str, str]) -> None:
    done = check(files, "target.gguf", "other.gguf", "--json", env=bare_machine)
    assert done.code == 4
    facts = json.loads(done.out)
    assert (facts["fits"], facts["usable"], facts["verdict"]) == (False, False, "incompatible")
    assert facts["shared_percent"] == 0
    assert facts["first_difference"] == {
        "token": 0,
        "target_piece": "<unk>",
        "draft_piece": "x\n\x1b[31m",
    }
    assert facts["chat_templates"] == "the same"
    assert facts["target"]["n_vocab"] == 6
    assert facts["target"]["fetched_bytes"] == 0
    done = check(files, "target.gguf", "target.gguf", "--json", env=bare_machine)
    same = json.loads(done.out)
    assert (done.code, same["first_difference"], same["shared_percent"]) == (0, None, None)
    assert same["usable"]


def test_of_remote_models_only_the_headers_are_read(
    hub: LoopbackHub, online: dict[str, str], files: Path
) -> None:
    done = check(files, "hf.co/owner/Big-GGUF", "owner/Small-GGUF:q8_0", "--json", env=online)
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["verdict"] == "compatible"
    assert (facts["target"]["size_bytes"], facts["draft_model"]["size_bytes"]) == (
        4_500_000_000,
        2_100_000_000,
    )
    assert (
        hub.sent_bytes == facts["target"]["fetched_bytes"] + facts["draft_model"]["fetched_bytes"]
    )
    assert hub.sent_bytes <= 2 << 20
    assert f"GET {at('Big', 'Big-Q4_K_M.gguf')}" in hub.requests
    assert hub.leaked == []
    assert "Bearer hf_secret" in hub.authorization


def test_shards_are_judged_by_the_first(
    hub: LoopbackHub, online: dict[str, str], files: Path
) -> None:
    done = check(files, "owner/Big-GGUF:Q8_0", "target.gguf", "--json", env=online)
    assert done.code == 0, done.err
    assert json.loads(done.out)["target"]["size_bytes"] == 8_000_000_000
    assert not any("00002-of" in asked for asked in hub.requests)


@pytest.mark.slow
def test_a_vocabulary_of_16_megabytes_is_read_within_the_limit(
    hub: LoopbackHub, online: dict[str, str], files: Path
) -> None:
    file = wide(9, 650_000)
    hub.files[at("Wide", "wide-Q4_K_M.gguf")] = file
    header = len(file.header)
    assert header > 16_000_000
    done = check(files, "owner/Wide-GGUF", "owner/Wide-GGUF", "--json", env=online)
    assert done.code == 0, done.err
    fetched = json.loads(done.out)["target"]["fetched_bytes"]
    assert header <= fetched <= LIMIT_BYTES
    assert hub.sent_bytes == 2 * fetched


@pytest.mark.slow
@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_never_ends_is_given_up_within_the_limit(
    hub: LoopbackHub, online: dict[str, str], files: Path, knows_ranges: bool
) -> None:
    hub.files[at("Endless", "endless-Q4_K_M.gguf")] = wide(9, 800_000)
    hub.knows_ranges = knows_ranges
    done = check(files, "owner/Endless-GGUF", "target.gguf", env=online)
    assert_one_complaint(done, 1)
    assert "its header is longer than 18 MiB" in done.err
    # A server that knows no ranges goes on sending into the buffers of the line until it is cut.
    assert hub.sent_bytes <= LIMIT_BYTES + (0 if knows_ranges else line_bytes())


def line_bytes() -> int:
    """Return how much the buffers at both ends of a line hold at most; 8 MB where the system does not tell."""
    try:
        return sum(
            int(Path(f"/proc/sys/net/ipv4/tcp_{each}mem").read_text().split()[2]) for each in "rw"
        )
    except OSError:
        return 8 << 20


def test_a_cut_line_goes_on_where_it_stopped(
    hub: LoopbackHub, online: dict[str, str], files: Path
) -> None:
    hub.faults.extend([Fault("cut", 1 << 19), Fault("cut", 1 << 18)])
    done = check(files, "owner/Big-GGUF", "target.gguf", env=online)
    assert done.code == 0, done.err
    assert hub.offsets == [0, 1 << 19, (1 << 19) + (1 << 18)]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("owner/None-GGUF", "target.gguf"), 3, "HTTP 404: no such repository, or a gated"),
        (("owner/Big-GGUF:Q2_K", "target.gguf"), 3, "has no Q2_K: it has Q4_K_M, Q8_0"),
        (("nothing", "target.gguf"), 3, "there is no model 'nothing'"),
        (("gone.gguf", "target.gguf"), 3, "there is no file gone.gguf"),
        (("text.gguf", "target.gguf"), 1, "text.gguf is not a GGUF file"),
        (("smollm2-135m", "target.gguf"), 3, "cannot be read from the hub (HTTP 404"),
    ],
)
def test_what_cannot_be_judged_is_told_in_one_line(
    hub: LoopbackHub,
    online: dict[str, str],
    files: Path,
    arguments: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    (files / "text.gguf").write_text("hello")
    done = check(files, *arguments, env=online)
    assert_one_complaint(done, code)
    assert text in done.err


def test_a_page_a_refusal_and_no_line_are_told_apart(
    hub: LoopbackHub, online: dict[str, str], bare_machine: dict[str, str], files: Path
) -> None:
    arguments = ("owner/Big-GGUF", "target.gguf")
    offline = check(files, *arguments, env={**online, "HF_HUB_OFFLINE": "1"})
    assert_one_complaint(offline, 3)
    assert "HF_HUB_OFFLINE is set" in offline.err
    nobody = check(files, *arguments, env=bare_machine)
    assert_one_complaint(nobody, 3)
    assert "no connection" in nobody.err
    hub.status = 401
    gated = check(files, *arguments, env=online)
    assert_one_complaint(gated, 3)
    assert "HTTP 401" in gated.err
    hub.portal = True
    portal = check(files, *arguments, env=online)
    assert_one_complaint(portal, 3)
    assert "a web page came" in portal.err


def test_the_known_pairs_are_listed(bare_machine: dict[str, str], tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "models.toml").write_text(
        '[pairs.mine]\ntarget = "/models/t.gguf"\ndraft_model = "smollm2-135m"\n'
    )
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(settings)}
    listed = json.loads(localspec("search", "--json", env=env).out)
    by_name = {each["name"]: each for each in listed}
    assert by_name["smollm2-135m"]["default"] is True
    coder = by_name["qwen2.5-coder-1.5b"]
    assert (coder["size_bytes"], coder["draft_bytes"]) == (1117320768, 491400064)
    assert by_name["mine"]["size_bytes"] is None
    assert not by_name["qwen3-8b"]["here"]


def test_a_registry_of_ones_own_is_checked(bare_machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[pairs.mine]\n\ntarget = 3\n")
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path)}
    done = localspec("search", env=env)
    assert_one_complaint(done, 2)
    assert "models.toml: pairs.mine.target must be text, not '3'" in done.err


def test_a_known_pair_is_shown_before_anything_is_here(bare_machine: dict[str, str]) -> None:
    done = localspec("show", "qwen3-8b", env=bare_machine)
    assert (done.code, done.err) == (0, "")
    (line,) = (line for line in done.out.splitlines() if line.startswith("drafts "))
    assert line.split(maxsplit=1)[1].startswith("qwen3-0.6b: known pair qwen3-8b, good for ")
    assert "not judged yet: `localspec check` reads" in line
    assert "7.9 times smaller" in line


def test_a_fingerprint_speaks_for_a_model_that_is_not_here(bare_machine: dict[str, str]) -> None:
    done = localspec("show", "qwen2.5-coder-1.5b:Q4_K_M", "--json", env=bare_machine)
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["drafts"]
    assert (found["draft_model"], found["verdict"]) == ("qwen2.5-coder-0.5b", "identical")
    assert found["reasons"][0] == "same tokenizer, by its fingerprint"
    assert found["reasons"][-1].endswith("seldom pays on a CPU")


def test_where_nothing_fits_nothing_is_shown(files: Path, bare_machine: dict[str, str]) -> None:
    done = localspec("show", "target.gguf", "--json", env=bare_machine, cwd=files)
    assert json.loads(done.out)["drafts"] == []


def test_a_pair_of_paths_that_are_not_there_is_listed_as_not_here(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "models.toml").write_text(
        '[pairs.odd]\ntarget = "~nobody-of-this-name/a.gguf"\ndraft_model = "/gone/b.gguf"\n'
    )
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path)}
    done = localspec("search", "--json", env=env)
    assert done.code == 0, done.err
    listed = {each["name"]: each for each in json.loads(done.out)}
    odd = listed["odd"]
    assert (odd["here"], odd["draft_here"], odd["size_bytes"]) == (False, False, None)
