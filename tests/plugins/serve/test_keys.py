"""The file of API keys: one a line, and nothing else in it is a key."""

from pathlib import Path

import pytest

from localspec.chat.request import Request
from localspec.engine.protocol import Count
from localspec.errors import UsageError
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.servers import keys_of
from tests.plugins.serve.serving import CHAT, COUNT, Served, served, user

FIRST, SECOND, THIRD = "sk-0123456789abcdef", "sk-fedcba9876543210", "a#b-0123456789abcd"
FILE = f"""# keys of the office

ann {FIRST}  # her laptop
{SECOND} gate=usual
bob\t{THIRD}
"""


def test_one_a_line_is_a_key_and_no_name_or_comment_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys"
    file.write_text(FILE)
    file.chmod(0o600)
    keys = keys_of(str(file))
    assert keys == {FIRST: "", SECOND: "usual", THIRD: ""}
    with served({}, guard=Guard(keys=(*keys,))) as server:
        for word in {*FILE.split(), "#"}:
            answer = server.client.get("/v1/models", headers={"Authorization": f"Bearer {word}"})
            assert answer.status_code == (200 if word in keys else 401), word
    for text, word in [
        ("ann 0123456789abcde\n", "line 1: the key has 15 characters"),
        (f"{FIRST}\n\nann of office {SECOND}\n", "line 3 has 4 words"),
        (f"{FIRST}\n{FIRST} gate=off\n", "line 2 repeats the key of an earlier line"),
        (f"{FIRST}\ngate=off\n", "line 2 has 0 words"),
        ("# none\n", "has no keys"),
        ("\udcff", "cannot be read"),
    ]:
        file.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(UsageError, match=word) as caught:
            keys_of(str(file))
        assert not any(each in str(caught.value) for each in (FIRST, SECOND))
    for mode, warned in [(0o600, False), (0o640, True), (0o606, True)]:
        file.write_text(f"\ufeff{FIRST}")
        file.chmod(mode)
        assert keys_of(str(file)) == {FIRST: ""}, "a byte order mark is no part of a key"
        assert ("chmod 600" in capsys.readouterr().err) == warned


def cached(server: Served, key: str, text: str) -> tuple[int, int]:
    """Return how many tokens of a prompt were known, and how many it has."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"messages": [user(text)], "max_tokens": 1}
    usage = server.client.post(CHAT, json=body, headers=headers).json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


SECRET = "the word is tangerine eight, and nobody else may know it, whoever guesses"


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_what_one_key_asked_is_in_no_figure_of_another(parallel: int) -> None:
    script = {"otherwise": ["Hello."], "parallel": parallel}
    for guesses in (["the word is tangerine"], ["the word is banana", SECRET[:50]], [SECRET]):
        with served(script, guard=Guard((FIRST, SECOND, THIRD))) as server:
            assert cached(server, FIRST, SECRET)[0] == 0
            assert cached(server, SECOND, guesses[0])[0] == 0
            assert cached(server, THIRD, guesses[-1])[0] == 0
            known, tokens = cached(server, THIRD, guesses[-1])
            assert known == tokens - 1, "its own is its own"
            assert (cached(server, FIRST, SECRET)[0] > 0) == (parallel > 2)
            assert server.request.owner


def test_what_is_counted_for_a_key_is_known_for_it_alone() -> None:
    with served({"sees": True}, guard=Guard((FIRST, SECOND))) as server:
        owners = []
        for key in (FIRST, SECOND):
            headers = {"Authorization": f"Bearer {key}"}
            body = {"messages": [user(SECRET)], "max_tokens": 1}
            for path in (COUNT, CHAT):
                assert server.client.post(path, json=body, headers=headers).status_code == 200
                question = server.asked[-1]
                assert isinstance(question, Request if path == CHAT else Count)
                owners.append(question.owner)
    assert owners[0] == owners[1] != owners[2] == owners[3]
    assert all(owners)


def test_without_keys_all_share_what_was_evaluated() -> None:
    with served({"otherwise": ["Hello."]}) as server:
        cached(server, "", SECRET)
        assert cached(server, "", SECRET)[0] > 30
        assert server.request.owner == ""
