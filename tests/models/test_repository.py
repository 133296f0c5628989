import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry
from localspec.models.names import hub_name
from localspec.models.repository import choose_files

REPO = (
    "README.md",
    "m-Q4_K_M.gguf",
    "m-UD-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-IQ4_XS.gguf",
    "mmproj-m-Q8_0.gguf",
    "mtp-m-Q8_0.gguf",
    "Q8_0/m-00002-of-00002.gguf",
    "Q8_0/m-00001-of-00002.gguf",
    "m.f16-00001-of-00002.gguf",
    "../m-Q2_K.gguf",
)


def files(*names: str) -> list[ModelEntry]:
    return [ModelEntry(name, 1, "0" * 64) for name in names]


def choose(quant: str | None, *names: str) -> list[str]:
    return [file.name for file in choose_files("me/m", quant, "Q4_K_M", files(*names))]


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        (None, ["m-Q4_K_M.gguf"]),
        ("q4_k_m", ["m-Q4_K_M.gguf"]),
        ("UD-Q4_K_M", ["m-UD-Q4_K_M.gguf"]),
        ("iq4_xs", ["m-IQ4_XS.gguf"]),
        ("Q8_0", ["Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf"]),
    ],
)
def test_a_quantisation_is_found_in_any_case(quant: str | None, expected: list[str]) -> None:
    assert choose(quant, *REPO) == expected


@pytest.mark.parametrize(
    ("quant", "problem"),
    [
        ("Q4_K", "me/m has no Q4_K: it has IQ4_XS, Q4_K_M, Q4_K_S"),
        ("XS", "has no XS"),
        ("Q2_K", "has no Q2_K"),
        ("F16", "has 1 of 2 shards of m.f16"),
    ],
)
def test_what_a_repository_has_not_is_named(quant: str, problem: str) -> None:
    with pytest.raises(ModelUnavailable, match=problem) as caught:
        choose(quant, *REPO)
    assert str(caught.value).isprintable()


def test_the_only_model_needs_no_quantisation() -> None:
    assert choose(None, "mmproj.gguf", "only.gguf") == ["only.gguf"]
    with pytest.raises(ModelUnavailable, match="has no Q4_K_M: it has other files"):
        choose(None, "one.gguf", "two.gguf")
    with pytest.raises(ModelUnavailable, match="has no GGUF file of a model"):
        choose("Q4_K_M", "README.md")


@pytest.mark.parametrize(
    ("text", "repo", "quant"),
    [
        ("user/repo", "user/repo", None),
        ("user/repo:q8_0", "user/repo", "q8_0"),
        ("hf.co/user/repo:Q4_K_M", "user/repo", "Q4_K_M"),
        ("https://huggingface.co/user/repo", "user/repo", None),
    ],
)
def test_a_reference_to_the_hub_is_recognised(text: str, repo: str, quant: str | None) -> None:
    found = hub_name(text)
    assert found is not None
    assert (found.repo, found.quant) == (repo, quant)


@pytest.mark.parametrize(
    "text",
    [
        "name",
        "name:Q8_0",
        "./a/b",
        "/a/b",
        "~/b",
        "a/b/c",
        "a/b.gguf",
        "../b",
        "a/..",
        "a/b:",
        "a/" + "b" * 300,
        "",
    ],
)
def test_other_names_are_no_references_to_the_hub(text: str) -> None:
    assert hub_name(text) is None


@given(st.text(max_size=40), st.text(max_size=8), st.lists(st.text(max_size=30), max_size=4))
def test_any_names_give_files_or_one_line(repo: str, quant: str, names: list[str]) -> None:
    hub_name(f"{repo}:{quant}")
    try:
        chosen = choose_files("me/m", quant, "Q4_K_M", files(*[f"{name}.gguf" for name in names]))
    except ModelUnavailable:
        return
    for file in chosen:
        assert not file.name.startswith("/")
        assert ".." not in file.name.split("/")
        assert "\0" not in file.name
