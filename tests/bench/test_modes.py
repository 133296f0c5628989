"""Modes: what a list of them means."""

import pytest

from localspec.bench.modes import PEER_MODES, is_peer, parse_modes
from localspec.errors import UsageError


def test_off_is_always_among_them_and_none_occurs_twice() -> None:
    assert parse_modes("auto, lookup:8,auto") == ["off", "auto", "lookup:8"]
    assert parse_modes("model:3,off") == ["off", "model:3"]


@pytest.mark.parametrize(
    "text",
    ["", ",", "fast", "lookup:", "off:3", "model:-1", "server", "server:x", "server:ngram-mod:3"],
)
def test_what_is_no_mode_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mode"):
        parse_modes(text)


@pytest.mark.parametrize("text", ["lookup:0", "model:64", "model:9999"])
def test_a_draft_length_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 63"):
        parse_modes(text)


def test_modes_of_a_peer_are_told_from_our_own() -> None:
    assert all(map(is_peer, parse_modes(",".join(PEER_MODES))[1:]))
    assert not any(map(is_peer, parse_modes("off,auto,lookup,model:3")))
