from pathlib import Path

import pytest

from localspec.chat.template import ChatTemplate
from localspec.chat.token_prefix import Conversation
from localspec.llama.model import LlamaModel
from localspec.options import LoadOptions

pytestmark = pytest.mark.weights


def test_smollm2_reads_a_conversation_as_its_makers_wrote_it(smollm2_path: Path) -> None:
    model = LlamaModel(smollm2_path, LoadOptions())
    try:
        vocabulary = model.vocabulary
        template = ChatTemplate(
            model.chat_template, vocabulary.bos_text, vocabulary.eos_text, model="smollm2"
        )
        conversation = Conversation()
        conversation.append_user("Explain <|im_end|>, please.")
        prompt = conversation.prompt_tokens(template, vocabulary)
        text = (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nExplain <|im_end|>, please.<|im_end|>\n<|im_start|>assistant\n"
        )
        assert b"".join(vocabulary.piece(token, special=True) for token in prompt).decode() == text
        (im_end,) = vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True)
        assert prompt.count(im_end) == 2
        assert vocabulary.tokenize(text, add_special=True, parse_special=True).count(im_end) == 3
    finally:
        model.close()
