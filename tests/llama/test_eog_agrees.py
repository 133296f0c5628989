"""The tokens that end a reply, as a header says, against what llama.cpp says of the same file."""

from pathlib import Path

import llama_cpp.llama_cpp as native
import pytest

from localspec.llama import backend
from localspec.models.gguf import read_header
from localspec.models.tokenizer import eog_tokens

pytestmark = pytest.mark.weights


@pytest.mark.slow
def test_the_ends_of_a_reply_are_llama_cpps(vocabularies: dict[str, Path]) -> None:
    backend.initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    wrong = {}
    for name, path in vocabularies.items():
        model = native.llama_model_load_from_file(str(path).encode(), params)
        assert model, name
        vocabulary = native.llama_model_get_vocab(model)
        count = native.llama_vocab_n_tokens(vocabulary)
        theirs = {t for t in range(count) if native.llama_vocab_is_eog(vocabulary, t)}
        native.llama_model_free(model)
        ours = eog_tokens(read_header(path).tokenizer)
        if ours != theirs:
            wrong[name] = (sorted(ours), sorted(theirs))
    assert wrong == {}
