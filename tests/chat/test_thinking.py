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
PARTS = ["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "a", "b"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


def filtered(chunks: list[str], opened: ThinkingTags | None = None) -> list[Text]:
    thinking = ThinkingFilter((THINK,), opened)
    spans = [span for chunk in chunks for span in thinking.feed(chunk)]
    spans += thinking.feed("", final=True)
    assert all(span.text for span in spans)
    groups = groupby(spans, key=lambda span: span.thinking)
    return [Text("".join(s.text for s in group), thinking) for thinking, group in groups]


def described(text: str, *, opened: bool) -> list[Text]:
    body = text.lstrip()
    if not opened and not body.startswith("<think>"):
        return [Text(text)] if text else []
    if not opened:
        body = body.removeprefix("<think>")
    thoughts, _, answer = body.partition("</think>")
    spans = [Text(thoughts.lstrip(), thinking=True), Text(answer.lstrip())]
    return [span for span in spans if span.text]


@given(TEXTS, st.booleans(), st.data())
def test_any_cutting_gives_the_same_parts(text: str, opened: bool, data: st.DataObject) -> None:
    before = THINK if opened else None
    assert filtered(cut(data, text), before) == described(text, opened=opened)


@given(TEXTS, st.data())
def test_without_tags_text_passes_untouched_and_at_once(text: str, data: st.DataObject) -> None:
    thinking = ThinkingFilter(())
    for chunk in cut(data, text):
        assert thinking.feed(chunk) == ([Text(chunk)] if chunk else [])
    assert thinking.feed("", final=True) == []


def test_thoughts_stream_and_a_prompt_may_end_inside_a_block() -> None:
    thinking = ThinkingFilter((THINK,))
    assert thinking.feed("<think>Hm, ") == [Text("Hm, ", thinking=True)]
    assert thinking.feed("so</th") == [Text("so", thinking=True)]
    assert thinking.feed("e</think>") == [Text("</the", thinking=True)]
    for prompt, opened in {
        "<|im_start|>assistant\n<think>\n": THINK,
        "<|im_start|>assistant\n": None,
        "<|im_start|>assistant\n<think>\n\n</think>\n\n": None,
        "What is <think>?<|im_end|>": None,
    }.items():
        assert opened_by(prompt, (MAGISTRAL, THINK)) == opened
    assert opened_by("<|start|>assistant<|channel|>final<|message|>", CHANNELS) is None


def test_a_template_that_mentions_a_tag_makes_it_count_and_visible() -> None:
    for tags in KNOWN_TAGS:
        if tags.close:
            assert tags in thinking_tags("{{ content.split('" + tags.close + "') }}")
            assert tags in thinking_tags("{{ '" + tags.open + "\\n' }}")
    assert thinking_tags("{{ messages[0].content }} Think!") == ()
    ids = {CONTROL.index(text): text.encode() for text in ("[THINK]", "[/THINK]")}
    assert tag_pieces((MAGISTRAL, THINK), ToyTokenizer()) == ids
    assert tag_pieces((), ToyTokenizer()) == {}


CHANNELS = thinking_tags(
    "{{ '<|channel|>analysis<|message|>' }}{{ '<|channel|>final<|message|>' }}"
)
FINAL = "<|channel|>final<|message|>Yes."


@pytest.mark.parametrize(
    ("text", "tags", "opened", "parts"),
    [
        # each tag closes only its own block
        ("[THINK]a</think>b[/THINK]c", (THINK, MAGISTRAL), None, ("a</think>b", "c")),
        # a block that never closes
        ("<think>Hm. </thi", (THINK,), None, ("Hm. </thi", "")),
        ("Hm.", (THINK,), THINK, ("Hm.", "")),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + FINAL, CHANNELS, None, ("Hm.", "Yes.")),
        (FINAL, CHANNELS, None, ("", "Yes.")),
    ],
)  # fmt: skip
def test_thoughts_and_answer(
    text: str, tags: tuple[ThinkingTags, ...], opened: ThinkingTags | None, parts: tuple[str, str]
) -> None:
    assert split_thinking(text, tags, opened) == parts
