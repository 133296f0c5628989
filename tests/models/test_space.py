from pathlib import Path

import pytest

from localspec.models.progress import SourceFailedError
from localspec.models.space import require_space, size_text


def test_sizes_are_told_in_decimal_units() -> None:
    assert size_text(98_362_432) == "98 MB"
    assert size_text(1_117_320_768) == "1.1 GB"


def test_a_directory_that_is_not_there_yet_has_the_room_of_its_parent(tmp_path: Path) -> None:
    require_space(tmp_path / "a" / "b", 1)
    with pytest.raises(SourceFailedError, match=r"needs .* GB free in .*, which has"):
        require_space(tmp_path / "a" / "b", 10**18)
