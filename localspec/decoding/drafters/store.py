"""StoreDrafter: copies what followed where the same was said in other conversations, or stands in files that were added."""

from collections.abc import Collection

from localspec.decoding.drafters.copying import Past, PastSource
from localspec.decoding.drafters.lookup import FIXED_MATCH, PRIOR, LookupDrafter
from localspec.decoding.drafters.register import Material

_WORTH = 0.9
"""What a match is worth before anything was seen, by what one in the text itself is."""


class StoreDrafter(LookupDrafter):
    """Looks up in what was said before where the text itself knows less.

    It leaves most of the budget: lookup is not to stand still for what the store has lost.

    Args:
        eog: ids that end a generation.
        min_match: tokens that must match.
        past: texts of other conversations.
    """

    name = "store"
    reserve = 12.5

    def __init__(self, eog: Collection[int], min_match: int, past: Past) -> None:
        prior = [_WORTH * chance for chance in PRIOR]
        super().__init__(eog, min_match, PastSource(past), prior)


def make(material: Material) -> StoreDrafter:
    """Return the register's drafter."""
    assert material.past is not None, "it needs a store"  # noqa: S101
    return StoreDrafter(material.eog, FIXED_MATCH if material.fixed else 2, material.past)
