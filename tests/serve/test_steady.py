"""What agents send with every request costs no cache: checksums before the system prompt, and a system message at the end."""

from typing import Any

import pytest

from localspec.messages import Message
from localspec.serve.steady import steady
from tests.serve.serving import CHAT, COUNT, MESSAGES, RESPONSES, Served, user

BILLING = "x-anthropic-billing-header: cc_version=2.1.42.{}; cc_entrypoint=cli; cch={};"
AGENT = "You are an agent that edits files. " * 6


SCRIPT = {"answers": {"Rhine": "It is 1233 km long."}, "otherwise": ["Hello."], "parallel": 2}


def cached(usage: dict[str, Any]) -> int:
    if "cache_read_input_tokens" in usage:
        return int(usage["cache_read_input_tokens"])
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return int(details["cached_tokens"])


def test_a_line_that_changes_with_every_request_costs_no_cache(server: Served) -> None:
    hello = user("Say hello.")
    first, second, third = (
        BILLING.format(*each) for each in (("834", "65abc"), ("01c", "00f1e"), ("fff", "12345"))
    )
    parts = [[{"type": "text", "text": text} for text in (line, AGENT)] for line in (first, second)]
    counts = []
    for path, body in (
        (MESSAGES, {"messages": [hello], "system": parts[0], "max_tokens": 20}),
        (MESSAGES, {"messages": [hello], "system": parts[1], "max_tokens": 20}),
        (CHAT, {"messages": [{"role": "system", "content": third + AGENT}, hello]}),
        (RESPONSES, {"instructions": third + AGENT, "input": "Say hello."}),
    ):
        counts.append(cached(server.post(path, **body).json()["usage"]))
    assert counts[0] == 0
    assert min(counts[1:]) > len(AGENT)


USER = user("How long is the Rhine? " * 8)
HISTORY = [USER, {"role": "assistant", "content": "It is 1233 km long."}, USER]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COUNT])
def test_a_system_message_behind_the_users_is_read_and_costs_no_cache(
    server: Served, path: str, role: str
) -> None:
    usage: dict[str, Any] = {}
    for note in ("It is 9 o'clock.", "It is 10 o'clock!"):
        said = [*HISTORY, {"role": role, "content": note}]
        body = {"input" if path == RESPONSES else "messages": said}
        answer = server.post(path, **body, **({"max_tokens": 99} if path == MESSAGES else {}))
        assert answer.status_code == 200, answer.text
        if path != COUNT:
            assert "It is 1233 km long." in answer.text
            assert server.request.messages[-1].role == "system"
            usage = answer.json()["usage"]
    assert path == COUNT or cached(usage) > 2 * len(USER["content"])


@pytest.mark.parametrize(
    ("text", "steadied"),
    [
        (BILLING.format("834", "65abc"), BILLING.format("0", "0")),
        (BILLING.format("834", "65abc") + "You are", BILLING.format("0", "0") + "You are"),
        ("x-a: id=0123456789abcdef; kind=cafe; v=2.1.177;", "x-a: id=0; kind=cafe; v=2.1.177;"),
        ("Remember x-a: id=0123456789abcdef;", None),
        ("x-a: id=0123456789abcdef", None),
        ("The build is abcdef; say so.", None),
    ],
)
def test_only_checksums_in_such_a_line_are_changed(text: str, steadied: str | None) -> None:
    rest = Message.user("x-a: id=0123456789abcdef;")
    assert steady([Message.system(text), rest]) == (Message.system(steadied or text), rest)
    assert steady([rest]) == (rest,)
    assert steady([]) == ()
