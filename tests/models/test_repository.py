import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry
from localspec.models.names import hub_name
from localspec.models.repository import choose_files

REPO = (
    "README.md m-Q4_K_M.gguf m-UD-Q4_K_M.gguf m-Q4_K_S.gguf m-IQ4_XS.gguf mmproj-m-Q8_0.gguf mtp-m-Q8_0.gguf "
    "Q8_0/m-00002-of-00002.gguf Q8_0/m-00001-of-00002.gguf m.f16-00001-of-00002.gguf ../m-Q2_K.gguf"
)


def choose(quant: str | None, names: str | list[str]) -> list[str]:
    files = names.split() if isinstance(names, str) else names
    entries = [ModelEntry(name, 1, "0" * 64) for name in files]
    return [file.name for file in choose_files("me/m", quant, "Q4_K_M", entries)]


@pytest.mark.parametrize(
    ("quant", "names", "expected"),
    [
        (None, REPO, "m-Q4_K_M.gguf"),
        ("q4_k_m", REPO, "m-Q4_K_M.gguf"),
        ("UD-Q4_K_M", REPO, "m-UD-Q4_K_M.gguf"),
        ("iq4_xs", REPO, "m-IQ4_XS.gguf"),
        ("Q8_0", REPO, "Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf"),
        (None, "mmproj.gguf only.gguf", "only.gguf"),
    ],
)
def test_a_quantisation_is_chosen_in_any_case(quant: str | None, names: str, expected: str) -> None:
    assert choose(quant, names) == expected.split()


@pytest.mark.parametrize(
    ("quant", "names", "problem"),
    [
        ("Q4_K", REPO, "me/m has no Q4_K: it has IQ4_XS, Q4_K_M, Q4_K_S"),
        ("XS", REPO, "has no XS"),
        ("Q2_K", REPO, "has no Q2_K"),
        ("F16", REPO, "has 1 of 2 shards of m.f16"),
        (None, "one.gguf two.gguf", "has no Q4_K_M: it has other files"),
        ("Q4_K_M", "README.md", "has no GGUF file of a model"),
    ],
)
def test_what_a_repository_has_not_is_named(quant: str | None, names: str, problem: str) -> None:
    with pytest.raises(ModelUnavailable, match=problem) as caught:
        choose(quant, names)
    assert str(caught.value).isprintable()


@given(st.text(max_size=40), st.text(max_size=8), st.lists(st.text(max_size=30), max_size=4))
def test_any_names_give_files_or_one_line(repo: str, quant: str, names: list[str]) -> None:
    hub_name(f"{repo}:{quant}")
    try:
        chosen = choose(quant, [f"{name}.gguf" for name in names])
    except ModelUnavailable:
        return
    for name in chosen:
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert "\0" not in name
