"""The short form: every target with its seeds and some hundred inputs made of them, without any tool."""

import pytest

from lab.fuzz import requests
from lab.fuzz.mutation import mutants
from lab.fuzz.target import load
from lab.fuzz.targets import NAMES
from tests.examples import LONG

# A report and a picture take milliseconds, and what reads a text takes microseconds.
_FEWER = {"telemetry": 40, "media": 80, "template": 80}


@pytest.mark.first(8)
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_hostile_input_is_an_error_of_one_line_at_most(name: str) -> None:
    target = load(name)
    count = _FEWER.get(name, 400)
    for data in mutants(target.seeds, count if LONG else count // 2, seed=8):
        target.check(data)


@pytest.mark.slow
def test_malformed_requests_are_answered_or_refused_and_print_nothing() -> None:
    found = requests.run(400, seed=5, clients=4)
    assert found.wrong == []
    assert {"200", "400", "405"} <= found.statuses.keys()
