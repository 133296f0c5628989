"""Biases of tokens as clients write them: by id, or as llama-server takes them by text, a number or false each."""

from localspec.engine.protocol import Tokenize
from localspec.plugins.serve.answering import Service

GivenBiases = dict[str, float | bool] | list[tuple[int | str, float | bool]]
_BAN = -100.0
"""The bias that OpenAI calls a ban."""


async def biases_by_id(given: GivenBiases | None, service: Service) -> dict[str, float] | None:
    """Return biases by the ids of tokens; one of a text is that of all its tokens.

    Args:
        given: as a body has them; `false` rules a token out, `true` changes nothing.
        service: knows the tokens of a text.

    Raises:
        LocalspecError: a text has no tokens that are known.
    """
    if given is None:
        return None
    biases = dict[str, float]()
    for token, bias in given.items() if isinstance(given, dict) else given:
        number = float(bias) if not isinstance(bias, bool) else 0.0 if bias else _BAN
        if isinstance(token, int) or token.strip().removeprefix("-").isdecimal():
            biases[str(token)] = number
            continue
        ids = (await service.tokens(Tokenize(0, str(token), add_special=False))).tokens
        biases |= dict.fromkeys(map(str, ids), number)
    return biases
