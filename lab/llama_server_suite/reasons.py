"""Why `localspec serve` fails tests of llama-server, found by their names and by what they say."""

import re

_REASONS: tuple[tuple[str, str], ...] = (
    (r"cannot call tools|tool_call_fast", "SmolLM2's template has no form for calls: tools are refused in a line"),
    (r"'timings' not in", "answers carry `timings` in each interface"),
    (r"thinking_history_in_count", "figures and words of another model, or of a context that is shifted or shared"),
    (r"vision|huggingface|tinygemma|jpeg", "needs a model from the network"),
    (r"test_security.*cors|Access-Control|cors_", "web pages of other origins are refused (403), and only those that are named are told so"),
    (r"public_endpoint|static_assets", "only the page is served without a key, and no file of llama.cpp's interface"),
    (r"/props|props|apply_chat|apply.?.?template|__verbose|verbose_debug|slots|return_progress|kv_keep|TEST_TAG|resume|during_model_load|reload|telemetry|lora|no_ui|aliases_and_tags|split_model|multiple_addresses|multimodal_with|pooling_none|proxy|cancel_request", "what only llama-server has: `/props`, `/slots`, `/apply-template`, `__verbose`, `return_progress`, resumed streams, its log, its page, several addresses"),
    (r"system_fingerprint|startswith|localspec-0|has_new_line|generation_settings|'logit_bias'|'tokens'|'' is None|content='', function_call|ignore_eos|exceed_context_size", "llama.cpp's own details: a fingerprint `b…`, `content: null` in the first chunk, `has_new_line`, `generation_settings`, `tokens` in each piece, the type of an error (the figures are there)"),
    (r"n_probs", "`n_probs` has no ids, and `post_sampling_probs` is refused by name"),
    (r"test_correct_api_key", "`/completions` is OpenAI's, as with `/v1`; llama.cpp's is `/completion`"),
    (r"embedding.*(mixed|content|pooling|pooling_none)", "`/v1/embeddings` takes texts, or ids, not both in one, no empty text and no objects"),
    (r"infill", "the model has no tokens for filling in, which is said"),
    (r"response_format", "a schema that is not strict is loosened, not refused"),
    (r"invalid_chat_completion_req", "two messages of one role in a row are taken"),
    (r"test_server_models", "other models of the machine are listed, too"),
    (r"Suddenly|going\|bed|cached_tokens|n_prompt|assert \d+ == \(?\d+|tokenize_with_bos|ctx_shift|unified|long_input|too_long|usage|match_regex|NoneType", "figures and words of another model, or of a context that is shifted or shared"),
    (r"vision|huggingface|tinygemma|jpeg", "needs a model from the network"),
    (r"tool_call|anthropic_tool", "SmolLM2's template has no form for calls: tools are refused in a line"),
)  # fmt: skip
"""A pattern of a test's name and its error, and the reason; the first that fits counts."""


def reason_of(name: str, words: str) -> str:
    """Return why a test fails."""
    text = f"{name} {words}"
    return next((reason for pattern, reason in _REASONS if re.search(pattern, text)), "not known")
