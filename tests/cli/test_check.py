"""`localspec check`, as its users have it: a process, files of their own, and a hub on the loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, assert_one_complaint, localspec
from tests.models.gguf_builder import TOKENS, Content, Tensor, build, model_file, model_values
from tests.models.loopback_hub import COMMIT, Fault, HugeFile, LoopbackHub, loopback_hub

pytestmark = pytest.mark.slow

LIMIT_BYTES = 20_000_000
PADDED = [*TOKENS, "[PAD6]"]
PADDED_TYPES = [2, 3, 3, 1, 1, 1, 5]


def huge(gigabytes: float, sha256: str = "5" * 64, **changes: Content | None) -> HugeFile:
    """A model of some gigabytes: the header of one, and a promise of the rest."""
    size = int(gigabytes * 1e9)
    weights = Tensor("weights", (size // 128, 16))  # half of it
    return HugeFile(build(model_values(**changes), [weights]), size, sha256)


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
    (folder / "words.gguf").write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    (folder / "other.gguf").write_bytes(
        model_file(tokens=["x\n\x1b[31m", *TOKENS[1:3], "x", "y", "z"], eos_token_id=1)
    )
    (folder / "text.gguf").write_text("hello")
    return folder


def check(folder: Path, *arguments: str, env: dict[str, str]) -> Done:
    return localspec("check", *arguments, env=env, cwd=folder)


def facts_of(folder: Path, *arguments: str, env: dict[str, str], code: int = 0) -> dict[str, Any]:
    done = check(folder, *arguments, "--json", env=env)
    assert (done.code, done.err) == (code, "")
    facts: dict[str, Any] = json.loads(done.out)
    return facts


def test_files_are_judged_by_their_tokens(files: Path, bare_machine: dict[str, str]) -> None:
    usable = {"usable": True, "fits": True}
    rows: list[tuple[Any, ...]] = [
        ("target.gguf", "./target.gguf", 0, ["identical: ./target.gguf can draft", "tokens 6 and 6, 100 %", "chat templates the same"], {**usable, "first_difference": None, "shared_percent": None}),
        ("padded.gguf", "target.gguf", 0, ["compatible: target.gguf can draft", "note vocabularies have 7 and 6 tokens"], {**usable, "verdict": "compatible"}),
        ("target.gguf", "words.gguf", 0, ["usable across vocabularies: words.gguf can draft", "shared 66.7 %", "use name it with --draft-model", "first difference token 5 is 'ab' and 'ba'"], {"usable": True, "fits": False, "verdict": "incompatible"}),
        ("target.gguf", "other.gguf", 4, ["incompatible: other.gguf cannot draft", r"first difference token 0 is '<unk>' and 'x\n\x1b[31m'", "tokens 6 and 6, 33.33 % overlap, counting", "shared 0.0 %"], {"usable": False, "fits": False, "shared_percent": 0, "chat_templates": "the same"}),
    ]  # fmt: skip
    for target, draft_model, code, lines, facts in rows:
        done = check(files, target, draft_model, env=bare_machine)
        assert (done.code, done.err) == (code, "")
        printed = [" ".join(line.split()) for line in done.out.splitlines()]
        assert printed[0].startswith(lines[0])
        assert [each for each in lines if not any(line.startswith(each) for line in printed)] == []
        known = facts_of(files, target, draft_model, env=bare_machine, code=code)
        assert {key: known[key] for key in facts} == facts
        assert (known["target"]["fetched_bytes"], known["draft_model"]["n_vocab"]) == (0, 6)
        if draft_model == "other.gguf":
            difference = {"token": 0, "target_piece": "<unk>", "draft_piece": "x\n\x1b[31m"}
            assert known["first_difference"] == difference


def test_remote_headers_alone_are_read(
    hub: LoopbackHub, online: dict[str, str], files: Path
) -> None:
    facts = facts_of(files, "hf.co/owner/Big-GGUF", "owner/Small-GGUF:q8_0", env=online)
    assert facts["verdict"] == "compatible"
    sides = facts["target"], facts["draft_model"]
    assert [each["size_bytes"] for each in sides] == [4_500_000_000, 2_100_000_000]
    assert hub.sent_bytes == sum(each["fetched_bytes"] for each in sides) <= 2 << 20
    assert f"GET {at('Big', 'Big-Q4_K_M.gguf')}" in hub.requests
    assert hub.leaked == []
    assert "Bearer hf_secret" in hub.authorization
    shards = facts_of(files, "owner/Big-GGUF:Q8_0", "target.gguf", env=online)
    assert shards["target"]["size_bytes"] == 8_000_000_000
    assert not any("00002-of" in each for each in hub.requests)


def test_mtp_layers_in_any_file(hub: LoopbackHub, online: dict[str, str], files: Path) -> None:
    values = model_values() | {
        "general.architecture": "qwen35",
        "qwen35.block_count": 3,
        "qwen35.nextn_predict_layers": 1,
    }
    for number, name in ((1, "token_embd.weight"), (2, "blk.2.nextn.eh_proj.weight")):
        data = build(values, [Tensor(name, (1 << 12, 1 << 10))])
        path = at("Layers", f"Layers-Q8_0-0000{number}-of-00002.gguf")
        hub.files[path] = HugeFile(data, 2 << 30, f"{number}" * 64)
    done = check(files, "owner/Layers-GGUF:Q8_0", "target.gguf", env=online)
    assert "has an MTP layer to draft with" in done.out


def test_a_cut_header_is_resumed(hub: LoopbackHub, online: dict[str, str], files: Path) -> None:
    hub.faults.extend([Fault("cut", 1 << 19), Fault("cut", 1 << 18)])
    done = check(files, "owner/Big-GGUF", "target.gguf", env=online)
    assert done.code == 0, done.err
    assert hub.offsets == [0, 1 << 19, (1 << 19) + (1 << 18)]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_never_ends_is_given_up_within_the_limit(
    hub: LoopbackHub, online: dict[str, str], files: Path, knows_ranges: bool
) -> None:
    tokens = [f"token-{number:08}" for number in range(800_000)]
    endless = huge(9, tokens=tokens, token_type=[1] * len(tokens), merges=None)
    hub.files[at("Endless", "endless-Q4_K_M.gguf")] = endless
    hub.knows_ranges = knows_ranges
    done = check(files, "owner/Endless-GGUF", "target.gguf", env=online)
    assert_one_complaint(done, 1, "its header is longer than 18 MiB")
    # A server that knows no ranges goes on sending into the buffers of the line until it is cut.
    assert hub.sent_bytes <= LIMIT_BYTES + (0 if knows_ranges else 32 << 20)


@pytest.mark.parametrize(
    ("target", "code", "told", "state"),
    [
        ("owner/None-GGUF", 3, "HTTP 404: no such repository, or a gated", {}),
        ("owner/Big-GGUF:Q2_K", 3, "has no Q2_K: it has Q4_K_M, Q8_0", {}),
        ("gone.gguf", 3, "gone.gguf", {}),
        ("text.gguf", 1, "text.gguf is not a GGUF file", {}),
        ("owner/Big-GGUF", 3, "HF_HUB_OFFLINE is set", {"HF_HUB_OFFLINE": "1"}),
        ("owner/Big-GGUF", 3, "no connection", {"HF_ENDPOINT": "http://127.0.0.1:9"}),
        ("owner/Big-GGUF", 3, "a web page came", {"portal": True}),
    ],
)
def test_what_cannot_be_judged_is_one_line(
    hub: LoopbackHub,
    online: dict[str, str],
    files: Path,
    target: str,
    code: int,
    told: str,
    state: dict[str, Any],
) -> None:
    hub.portal = "portal" in state
    variables = {name: value for name, value in state.items() if name.isupper()}
    done = check(files, target, "target.gguf", env={**online, **variables})
    assert_one_complaint(done, code, told)
