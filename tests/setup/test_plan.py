"""What setup will do, by what was found and what was asked for."""

from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.setup.plan import GpuFinding, SetupPlan, decide

BARE = {
    "cuda": GpuFinding(lacks=("nvcc",)),
    "rocm": GpuFinding(),
    "vulkan": GpuFinding(),
    "cpu": GpuFinding(),
}
CARD = {**BARE, "cuda": GpuFinding(("Card",))}


def decided(
    found: dict[str, GpuFinding], *built_in: str, is_made: bool = False, **request: Any
) -> SetupPlan:
    return decide(found, built_in or ("CPU",), is_made=is_made, **request)


def test_without_a_gpu_nothing_changes() -> None:
    plan = decided(BARE)
    assert plan.backend is None
    assert plan.reason == "no GPU was found: the CPU is used, and nothing changes"


def test_software_is_no_gpu_unless_it_is_asked_for() -> None:
    found = {**BARE, "vulkan": GpuFinding(hint="llvmpipe computes on the CPU")}
    assert decided(found).reason.startswith("no GPU was found (llvmpipe computes on the CPU)")
    plan = decided(found, backend="vulkan")
    assert plan.options == ("-DGGML_VULKAN=ON",)
    assert plan.reason == "Vulkan (llvmpipe computes on the CPU)"


def test_the_gpu_that_is_there_is_built_for() -> None:
    plan = decided(CARD)
    assert (plan.options, plan.gpus, plan.lacks) == (("-DGGML_CUDA=ON",), ("Card",), ())


def test_what_is_not_here_and_need_not_be_is_an_option_and_told_unless_others_compiled() -> None:
    found = {**BARE, "cuda": GpuFinding(("Card",), instead={"-DLESS=ON": "it has less"})}
    plan = decided(found, rpc=True)
    assert (plan.defaults, plan.reason) == (("-DLESS=ON",), "CUDA (Card); it has less")
    plan = decided(found, wheels="https://wheels.example")
    assert (plan.options, plan.defaults) == (("-DGGML_CUDA=ON",), ())
    assert plan.reason == "CUDA (Card)"


def test_what_can_be_built_at_once_goes_before_what_needs_a_compiler_first() -> None:
    lacking = {**BARE, "cuda": GpuFinding(("Card",), ("nvcc",))}
    found = {**lacking, "vulkan": GpuFinding(("Card",))}
    assert decided(found).options == ("-DGGML_VULKAN=ON",)
    assert decided(lacking).lacks == ("nvcc",)
    # Somebody else has compiled a wheel.
    assert decided(lacking, wheels="https://wheels.example").lacks == ()


def test_what_is_in_use_stays_and_of_prebuilt_wheels_the_first_is_taken() -> None:
    vulkan = GpuFinding(("Card",))
    found = {**BARE, "cuda": GpuFinding(("Card",), ("nvcc",)), "vulkan": vulkan}
    assert decided(found, "CUDA", "CPU").reason == "CUDA (Card) is already built in"
    assert decided({**CARD, "vulkan": vulkan}, "Vulkan", "CPU").backend is None
    plan = decided(found, wheels="https://wheels.example")
    assert (plan.options, plan.lacks) == (("-DGGML_CUDA=ON",), ())


@pytest.mark.parametrize("called", ["CUDA", "cuda"])
def test_what_is_built_in_is_left_alone(called: str) -> None:
    plan = decided(CARD, called, "CPU")
    assert (plan.backend, plan.reason) == (
        None,
        "CUDA (Card) is already built in",
    )
    assert decided(CARD, called, "CPU", rebuild=True).backend is not None


def test_rpc_is_added_and_not_lost() -> None:
    both = ("-DGGML_CUDA=ON", "-DGGML_RPC=ON")
    assert decided(CARD, "CPU", rpc=True).options == both
    assert decided(CARD, "CPU", "RPC").options == both
    assert decided(CARD, "CUDA", "CPU", rpc=True).options == both
    assert decided(CARD, "CUDA", "RPC", rpc=True).backend is None
    assert decided(BARE, "CPU", rpc=True).options == ("-DGGML_RPC=ON",)


def test_the_cpu_goes_back_to_the_build_that_came_with_the_environment() -> None:
    assert decided(CARD, "CUDA", "CPU", is_made=True, backend="cpu").to_own
    assert decided(CARD, "CPU", backend="cpu").backend is None


def test_another_systems_backend_is_refused() -> None:
    with pytest.raises(UsageError, match="--for metal is for another system: choose one of cuda"):
        decided(BARE, backend="metal")


def test_how_long_it_takes_is_called_an_estimate_where_it_was_not_measured() -> None:
    rocm = {**BARE, "rocm": GpuFinding(("Card",))}
    assert decided(rocm).minutes(8).endswith("(an estimate, not measured)")
    assert decided(CARD).minutes(2) == "about 37 minutes on 2 cores"
    assert decided(BARE, rpc=True).minutes(2) == "about 3 minutes on 2 cores"
