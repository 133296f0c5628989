from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.events import Text
from localspec.chat.reply_text import ThinkingFilter, split_thinking
from localspec.chat.thinking import KNOWN_TAGS, ThinkingTags, opened_by, tag_pieces, thinking_tags
from tests.chat.cutting import cut
from tests.chat.toy_tokenizer import CONTROL, ToyTokenizer

THINK = ThinkingTags("<think>", "</think>")
MAGISTRAL = ThinkingTags("[THINK]", "[/THINK]")

texts = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "a", "b"]), max_size=12
).map("".join)


def merged(spans: list[Text]) -> list[Text]:
    groups = groupby(spans, key=lambda span: span.thinking)
    return [Text("".join(s.text for s in group), thinking) for thinking, group in groups]


def filtered(
    chunks: list[str], tags: tuple[ThinkingTags, ...], opened: ThinkingTags | None = None
) -> list[Text]:
    thinking = ThinkingFilter(tags, opened)
    spans = [span for chunk in chunks for span in thinking.feed(chunk)] + thinking.feed(
        "", final=True
    )
    assert all(span.text for span in spans)
    return merged(spans)


def described(text: str, *, opened: bool) -> list[Text]:
    body = text.lstrip()
    if not opened and not body.startswith("<think>"):
        return [Text(text, thinking=False)] if text else []
    if not opened:
        body = body.removeprefix("<think>")
    thoughts, _, answer = body.partition("</think>")
    spans = [Text(thoughts.lstrip(), thinking=True), Text(answer.lstrip(), thinking=False)]
    return [span for span in spans if span.text]


@given(texts, st.booleans(), st.data())
def test_any_cutting_gives_the_same_thoughts_and_answer(
    text: str, opened: bool, data: st.DataObject
) -> None:
    before = THINK if opened else None
    assert filtered(cut(data, text), (THINK,), before) == described(text, opened=opened)


@given(texts, st.data())
def test_without_tags_text_passes_untouched_and_at_once(text: str, data: st.DataObject) -> None:
    thinking = ThinkingFilter(())
    for chunk in cut(data, text):
        assert thinking.feed(chunk) == ([Text(chunk, thinking=False)] if chunk else [])
    assert thinking.feed("", final=True) == []


def test_the_tags_and_the_space_around_them_are_shown_nowhere() -> None:
    spans = filtered(["\n<think>\nHm.\n</think>\n\nYes. "], (THINK,))
    assert spans == [Text("Hm.\n", thinking=True), Text("Yes. ", thinking=False)]


def test_thoughts_stream_before_the_block_is_closed() -> None:
    thinking = ThinkingFilter((THINK,))
    assert thinking.feed("<think>Hm, ") == [Text("Hm, ", thinking=True)]
    assert thinking.feed("so</th") == [Text("so", thinking=True)]
    assert thinking.feed("e</think>") == [Text("</the", thinking=True)]


def test_empty_thoughts_are_no_span() -> None:
    assert filtered(["<think>\n\n</think>\n\nYes."], (THINK,)) == [Text("Yes.", thinking=False)]


def test_a_tag_that_an_answer_mentions_is_text() -> None:
    text = "<think>Hm.</think>Write <think> and </think>."
    assert split_thinking(text, (THINK,)) == ("Hm.", "Write <think> and </think>.")
    assert split_thinking("Use <think>.", (THINK,)) == ("", "Use <think>.")


def test_each_tag_closes_only_its_own_block() -> None:
    text = "[THINK]a</think>b[/THINK]c"
    assert split_thinking(text, (THINK, MAGISTRAL)) == ("a</think>b", "c")


def test_a_block_that_never_closes_is_all_thoughts() -> None:
    assert split_thinking("<think>Hm. </thi", (THINK,)) == ("Hm. </thi", "")
    assert split_thinking("Hm.", (THINK,), THINK) == ("Hm.", "")


def test_gpt_oss_channels_are_thoughts_and_answer() -> None:
    tags = thinking_tags(
        "{{ '<|channel|>analysis<|message|>' }}{{ '<|channel|>final<|message|>' }}"
    )
    thoughts = "<|channel|>analysis<|message|>Hm.<|end|>"
    answer = "<|start|>assistant<|channel|>final<|message|>Yes."
    assert split_thinking(thoughts + answer, tags) == ("Hm.", "Yes.")
    assert split_thinking("<|channel|>final<|message|>Yes.", tags) == ("", "Yes.")
    assert opened_by("<|start|>assistant<|channel|>final<|message|>", tags) is None


@pytest.mark.parametrize("tags", [tags for tags in KNOWN_TAGS if tags.close])
def test_a_template_that_mentions_a_tag_makes_it_count(tags: ThinkingTags) -> None:
    assert tags in thinking_tags("{{ content.split('" + tags.close + "') }}")
    assert tags in thinking_tags("{{ '" + tags.open + "\\n' }}")


def test_a_template_that_mentions_no_tag_has_no_thinking() -> None:
    assert thinking_tags("{{ messages[0].content }} Think!") == ()


def test_a_prompt_may_end_inside_a_block() -> None:
    tags = (MAGISTRAL, THINK)
    assert opened_by("<|im_start|>assistant\n<think>\n", tags) == THINK
    assert opened_by("<|im_start|>assistant\n", tags) is None
    assert opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n", tags) is None
    assert opened_by("What is <think>?<|im_end|>", tags) is None


def test_tags_that_are_control_tokens_can_be_made_visible() -> None:
    ids = {CONTROL.index(text): text.encode() for text in ("[THINK]", "[/THINK]")}
    assert tag_pieces((MAGISTRAL, THINK), ToyTokenizer()) == ids
    assert tag_pieces((), ToyTokenizer()) == {}
