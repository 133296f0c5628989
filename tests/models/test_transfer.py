from pathlib import Path

import pytest

from localspec.models.transfer import SourceFailedError, require_space


def test_a_disk_without_room_is_told_with_what_it_has(tmp_path: Path) -> None:
    require_space(tmp_path / "a" / "b", 1)
    with pytest.raises(SourceFailedError, match=r"needs .* GB free in .*, which has"):
        require_space(tmp_path / "a" / "b", 10**18)
