"""OpenAI's responses, asked by OpenAI's own client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.serve.clients import Package
from tests.serve.serving import Served

if TYPE_CHECKING:
    import openai
else:
    openai = Package("openai")

SCRIPT = {
    "answers": {"Rhine": "It is 1233 km long.", "why": "<think>So.</think>It is."},
    "otherwise": ["Hello.", "Again."],
    "thinks": True,
}


def test_a_question_is_answered(client: openai.OpenAI) -> None:
    done = client.responses.create(model="a-pair", input="How long is the Rhine?", temperature=0)
    assert (done.output_text, done.status) == ("It is 1233 km long.", "completed")
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    cut = client.responses.create(model="a-pair", input="the Rhine", max_output_tokens=5)
    assert (cut.output_text, cut.status) == ("It is", "incomplete")
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_what_was_answered_can_be_sent_back(client: openai.OpenAI) -> None:
    first = client.responses.create(model="a-pair", input="why?", instructions="Be brief.")
    assert [each.type for each in first.output] == ["reasoning", "message"]
    turns = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    turns += [each.model_dump() for each in first.output]
    turns += [{"role": "user", "content": "and?", "type": "message"}]
    again = client.responses.create(model="a-pair", input=turns, instructions="Be brief.")  # type: ignore[arg-type]
    assert again.output_text == "Again."


def test_a_stream_has_its_events_in_their_order(client: openai.OpenAI) -> None:
    with client.responses.stream(model="a-pair", input="the Rhine") as stream:
        events = list(stream)
        whole = stream.get_final_response()
    assert whole.output_text == "It is 1233 km long."
    assert [each.sequence_number for each in events] == list(range(len(events)))
    kinds = [each.type.removeprefix("response.") for each in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]


def test_thoughts_are_streamed_as_an_item_of_their_own(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="a-pair", input="why?", stream=True))
    assert events[-1].type == "response.completed"
    assert [each.type for each in events[-1].response.output] == ["reasoning", "message"]
    assert events[-1].response.output_text == "It is."
    thoughts = [each.delta for each in events if each.type == "response.reasoning_text.delta"]
    assert "".join(thoughts).strip() == "So."


def test_logprobs_are_told(client: openai.OpenAI) -> None:
    done = client.responses.create(
        model="a-pair", input="the Rhine", include=["message.output_text.logprobs"], top_logprobs=1
    )
    assert done.output[0].type == "message"
    part = done.output[0].content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert "".join(each.token for each in part.logprobs) == done.output_text


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"previous_response_id": "resp_1"}, "nothing is stored"),
        ({"conversation": "conv_1"}, "nothing is stored"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "only messages"),
        ({"input": []}, "say something"),
        ({"input": [3]}, "item 1"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "only text is"),
        ({"text": {"format": {"type": "json_schema"}}}, "schema"),
        ({"top_logprobs": 99}, "0 to 20"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    server: Served, more: dict[str, object], told: str
) -> None:
    for stream in (False, True):
        body = {"input": "hello", "stream": stream, **more}
        answer = server.client.post("/v1/responses", content=json.dumps(body))
        assert answer.status_code == 400
        assert told in answer.json()["error"]["message"]
