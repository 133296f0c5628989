"""OpenAI's responses, asked by OpenAI's own client."""

from typing import Any

import pytest

from localspec.messages import Message
from tests.serve.serving import RESPONSES, Served, user

RHINE = "It is 1233 km long."
SCRIPT = {
    "answers": {"Rhine": RHINE, "why": "<think>So.</think>It is."},
    "otherwise": ["Hello.", "Again."],
    "thinks": True,
}


def test_a_question_is_answered(client: Any) -> None:
    done = client.responses.create(model="a-pair", input="the Rhine?", temperature=0)
    assert (done.output_text, done.status) == (RHINE, "completed")
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    cut = client.responses.create(model="a-pair", input="the Rhine", max_output_tokens=5)
    assert (cut.output_text, cut.status) == ("It is", "incomplete")
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_an_answer_can_be_sent_back(client: Any) -> None:
    first = client.responses.create(model="a-pair", input="why?", instructions="Be brief.")
    assert [each.type for each in first.output] == ["reasoning", "message"]
    turns = [user([{"type": "input_text", "text": "hello"}])]
    turns += [*(each.model_dump() for each in first.output), {**user("and?"), "type": "message"}]
    again = client.responses.create(model="a-pair", input=turns, instructions="Be brief.")
    assert again.output_text == "Again."


def test_thoughts_that_are_sent_back_are_part_of_their_answer(server: Served) -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "So."}]}
    turns = [user("why?"), thought, {"role": "assistant", "content": "It is."}, user("and?")]
    broken = [{"type": "reasoning", "content": 5}, {"type": "reasoning", "summary": []}]
    assert server.post(RESPONSES, input=[*broken, *turns]).status_code == 200
    assert server.request.messages[1] == Message.assistant("It is.", "So.")


def test_a_stream_has_its_events_in_their_order(client: Any) -> None:
    with client.responses.stream(model="a-pair", input="the Rhine") as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == RHINE
    assert [each.sequence_number for each in events] == list(range(len(events)))
    kinds = [each.type.removeprefix("response.") for each in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]


def test_thoughts_are_an_item_of_their_own(client: Any) -> None:
    events = list(client.responses.create(model="a-pair", input="why?", stream=True))
    done = events[-1].response
    assert [each.type for each in done.output] == ["reasoning", "message"]
    assert (done.status, done.output_text) == ("completed", "It is.")
    thoughts = [each.delta for each in events if each.type == "response.reasoning_text.delta"]
    assert "".join(thoughts).strip() == "So."


def test_logprobs_are_in_the_text(client: Any) -> None:
    done = client.responses.create(
        model="a-pair", input="the Rhine", include=["message.output_text.logprobs"], top_logprobs=1
    )
    logprobs = done.output[0].content[0].logprobs
    assert "".join(each.token for each in logprobs) == done.output_text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"previous_response_id": "resp_1"}, "nothing is stored"),
        ({"conversation": "conv_1"}, "nothing is stored"),
        ({"prompt": {"id": "x"}}, "prompt is not supported"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "only messages"),
        ({"input": []}, "say something"),
        ({"input": [3]}, "item 1"),
        ({"input": [user([{"type": "input_image"}])]}, "only text is"),
        ({"text": {"format": {"type": "json_schema"}}}, "schema"),
        ({"top_logprobs": 99}, "0 to 20"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    server: Served, more: dict[str, Any], word: str, stream: bool
) -> None:
    server.refuse(RESPONSES, word, **{"input": "hello", "stream": stream, **more})
