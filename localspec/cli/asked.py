"""What flags ask for: the options of `answer_options`, turned into requests."""

from collections.abc import Mapping
from typing import Any

from localspec.chat.reply_options import ReplyOptions
from localspec.decoding.sampling import SamplingParams
from localspec.launch.plan import Launch
from localspec.llama.options import LoadOptions


def asked_launch(flags: Mapping[str, Any]) -> Launch:
    """Return what to load.

    Raises:
        UsageError: the flags contradict each other, or one is out of its range.
    """
    return Launch(
        pair=flags["pair"],
        target=flags["target"],
        draft_model=flags["draft_model"],
        draft=flags["draft"],
        draft_length=flags["draft_length"],
        options=LoadOptions(
            n_ctx=flags["ctx"],
            gpu_layers=flags["gpu_layers"],
            devices=tuple(flags["device"]),
            threads=flags["threads"],
            kv_type=flags["kv_type"],
        ),
        exact=flags["exact"],
        offline=flags["offline"],
        fit=flags["fit"],
    )


def asked_reply(flags: Mapping[str, Any]) -> ReplyOptions:
    """Return how to answer.

    Raises:
        UsageError: a flag is out of its range.
    """
    return ReplyOptions(
        asked_sampling(flags),
        flags["seed"],
        flags["max_tokens"],
        flags["stop"],
    )


def asked_sampling(flags: Mapping[str, Any]) -> SamplingParams:
    """Return how tokens are chosen.

    Raises:
        UsageError: a flag is out of its range.
    """
    return SamplingParams(
        temperature=flags["temperature"],
        top_k=flags["top_k"],
        top_p=flags["top_p"],
        min_p=flags["min_p"],
        repeat_penalty=flags["repeat_penalty"],
    )
