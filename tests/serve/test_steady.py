"""What agents put before their system prompt costs no cache, and nothing else is touched."""

import pytest

from localspec.messages import Message
from localspec.serve.steady import steady
from tests.serve.serving import served

BILLING = "x-anthropic-billing-header: cc_version=2.1.42.{}; cc_entrypoint=cli; cch={};"
AGENT = "You are an agent that edits files. " * 6


def test_a_line_that_changes_with_every_request_costs_no_cache() -> None:
    question = {"role": "user", "content": "Say hello."}
    with served({"otherwise": ["Hello."], "parallel": 2}) as server:
        cached = []
        for suffix, checksum in (("834", "65abc"), ("01c", "00f1e")):
            system = [
                {"type": "text", "text": text} for text in (BILLING.format(suffix, checksum), AGENT)
            ]
            body = {"messages": [question], "system": system, "max_tokens": 20}
            usage = server.client.post("/v1/messages", json=body).json()["usage"]
            cached.append(usage["cache_read_input_tokens"])
        assert cached[0] == 0
        assert usage["input_tokens"] < 5
        prompt = BILLING.format("fff", "12345") + AGENT
        body = {"messages": [{"role": "system", "content": prompt}, question]}
        usage = server.client.post("/v1/chat/completions", json=body).json()["usage"]
        assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 5
        body = {"instructions": prompt, "input": "Say hello."}
        usage = server.client.post("/v1/responses", json=body).json()["usage"]
        assert usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"] < 5


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (BILLING.format("834", "65abc"), BILLING.format("0", "0")),
        (BILLING.format("834", "65abc") + "You are", BILLING.format("0", "0") + "You are"),
        ("x-a: id=0123456789abcdef; kind=cafe; v=2.1.177;", "x-a: id=0; kind=cafe; v=2.1.177;"),
        ("Remember x-a: id=0123456789abcdef;", None),
        ("x-a: id=0123456789abcdef", None),
        ("The build is abcdef; say so.", None),
    ],
)
def test_only_checksums_in_such_a_line_are_changed(said: str, told: str | None) -> None:
    rest = Message.user("x-a: id=0123456789abcdef;")
    assert steady([Message.system(said), rest]) == (Message.system(told or said), rest)
    assert steady([rest]) == (rest,)
    assert steady([]) == ()
