"""Every conversation that programs send fits every template: nothing is refused, and nothing that was said is lost."""

import pytest

from lab.templates import SHAPES, sources, table
from tests.vocabularies import real_templates


@pytest.mark.first(24)
@pytest.mark.parametrize("name", [*real_templates()])
def test_twelve_conversations_fit_a_real_template(name: str) -> None:
    row = table({name: sources()[name]})[name]
    wrong = {of: each for of, each in row.items() if each.outcome in {"lost", "refused"}}
    assert not wrong
    assert len(row) == len(SHAPES) == 12
    assert row["results swapped"].text == row["two calls"].text
