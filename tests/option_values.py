"""Strategies of hypothesis for options, made from what is declared of them."""

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.options import Option, changed, options_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
_BIASES = st.floats(-10_000, 10_000)
_OF_FORM: dict[str, st.SearchStrategy[Any]] = {
    "tensor_split": st.sampled_from(["3,1", "1", "0.5, 2,0"]),
    "template_kwargs": st.sampled_from(['{"style": "plain"}', '{"a_1": [1, null], "b": true}']),
}
_OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "logit_bias": st.lists(st.tuples(st.integers(0, 1 << 20), _BIASES), max_size=3).map(tuple),
    "json_schema": st.one_of(
        st.dictionaries(st.text(max_size=5), st.integers()),
        st.booleans(),
        st.dictionaries(st.text(max_size=5), st.integers()).map(json.dumps),
    ),
}


def values(option: Option) -> st.SearchStrategy[Any]:
    least, most = max(option.least, -(1 << 60)), min(option.most, 1 << 60)
    match option.kind:
        case "whole":
            found: st.SearchStrategy[Any] = st.integers(int(least), int(most))
        case "number":
            found = st.floats(least, most)
        case "switch":
            found = st.booleans()
        case "choice":
            found = st.sampled_from(option.choices)
        case "text":
            found = _OF_FORM.get(option.name, _TEXTS)
        case "texts":
            found = st.lists(_TEXTS, max_size=3).map(tuple)
        case "other":
            found = _OTHERS[option.name]
    return st.one_of(st.none(), found) if option.may_be_unset else found


@st.composite
def some(draw: st.DrawFn, kind: "type[T]") -> "T":
    assert fields(kind)
    options = kind()
    for option in draw(st.lists(st.sampled_from(options_of(kind)), max_size=6)):
        try:
            options = changed(options, {option.name: draw(values(option))})
        except UsageError as error:
            two_disagree = ("cannot be combined", "--exact", "needs flash_attention")
            assert any(words in str(error) for words in two_disagree)  # noqa: PT017
    return options
