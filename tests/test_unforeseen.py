"""Memory that was taken and not planned is told, and only then."""

from localspec.launch.load import unforeseen
from localspec.models.fit import Place, PlaceUse
from localspec.resources import Usage

MB = 1_000_000
GPU = PlaceUse(
    Place("CUDA0", 1000 * MB, 100 * MB),
    Usage(400 * MB, kv_bytes=200 * MB),
    Usage(100 * MB, compute_bytes=50 * MB),
)


def test_what_is_planned_and_kept_free_may_be_taken() -> None:
    assert list(unforeseen([GPU], {"CUDA0": Usage(500 * MB, 300 * MB, 50 * MB)})) == []
    assert list(unforeseen([GPU], {"RAM": Usage(9000 * MB, 9000 * MB)})) == []


def test_the_range_of_a_file_that_is_mapped_is_no_memory_taken() -> None:
    assert list(unforeseen([GPU], {"CUDA0": Usage(9000 * MB, 200 * MB)})) == []


def test_more_is_told_with_what_helps() -> None:
    (line,) = unforeseen([GPU], {"CUDA0": Usage(500 * MB, 300 * MB, 51 * MB)})
    assert line.startswith("caches and scratch take 351 MB of CUDA0, and 250 MB were planned")
    assert "--ctx" in line
