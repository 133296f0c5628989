"""Memory that was taken and not planned is told, and only then."""

from localspec.launch.unforeseen import unforeseen
from localspec.llama.allocated import Allocated
from localspec.models.fit import PlaceUse
from localspec.models.memory import Usage
from localspec.models.offload import Place

GPU = PlaceUse(Place("CUDA0", 1000, 100), Usage(400, kv_bytes=200), Usage(100, compute_bytes=50))


def test_what_is_planned_and_kept_free_may_be_taken() -> None:
    assert list(unforeseen([GPU], {"CUDA0": Allocated(500, 300, 50)})) == []
    assert list(unforeseen([GPU], {"RAM": Allocated(9000, 9000)})) == []


def test_the_range_of_a_file_that_is_mapped_is_no_memory_taken() -> None:
    assert list(unforeseen([GPU], {"CUDA0": Allocated(9000, 200)})) == []


def test_more_is_told_with_what_helps() -> None:
    (line,) = unforeseen([GPU], {"CUDA0": Allocated(500, 300, 51)})
    assert line.startswith("caches and scratch take 351 B of CUDA0, and 250 B were planned")
    assert "--ctx" in line
