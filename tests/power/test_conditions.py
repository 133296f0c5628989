"""What the machine takes from the server, on made-up trees."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from localspec.power.conditions import Conditions, Watch
from tests.serve.serving import served

POWER, ZONE = "sys/class/power_supply", "sys/class/thermal/thermal_zone0"
CPUFREQ, THROTTLE = "sys/devices/system/cpu/cpufreq", "sys/devices/system/cpu/cpu0/thermal_throttle"
ON_BATTERY = {
    f"{POWER}/AC/type": "Mains\n",
    f"{POWER}/AC/online": "0\n",
    f"{POWER}/BAT0/type": "Battery\n",
    f"{POWER}/BAT0/status": "Discharging\n",
    f"{POWER}/BAT0/capacity": "43\n",
    f"{POWER}/mouse/type": "Battery\n",
    f"{POWER}/mouse/scope": "Device\n",
    f"{POWER}/mouse/status": "Discharging\n",
    f"{POWER}/mouse/capacity": "5\n",
}
HOT = {
    f"{ZONE}/type": "x86_pkg_temp\n",
    f"{ZONE}/temp": "96000\n",
    f"{ZONE}/trip_point_0_type": "passive\n",
    f"{ZONE}/trip_point_0_temp": "95000\n",
    f"{ZONE}/trip_point_1_type": "active\n",
    f"{ZONE}/trip_point_1_temp": "40000\n",
}
SLOWED = {
    f"{CPUFREQ}/policy0/scaling_max_freq": "1800000\n",
    f"{CPUFREQ}/policy0/cpuinfo_max_freq": "3600000\n",
}


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def cpu(*busy_s: float) -> str:
    """Return /proc/stat of cores that ran so long."""
    per_s = os.sysconf("SC_CLK_TCK")
    lines = [f"cpu{n} {round(each * per_s)} 0 0 900 0 0 0 0 0 0" for n, each in enumerate(busy_s)]
    return "\n".join(["cpu  1 2 3 4", *lines, "intr 1"])


def process(busy_s: float) -> str:
    ticks = round(busy_s * os.sysconf("SC_CLK_TCK"))
    return f"7 (a) name) S {' '.join(['0'] * 10)} {ticks} 0 0 0"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, []),
        (ON_BATTERY, ["on battery, 43 % left"]),
        ({**ON_BATTERY, f"{POWER}/AC/online": "1"}, []),
        ({**ON_BATTERY, f"{POWER}/BAT0/status": "Full"}, []),
        (
            {**ON_BATTERY, **SLOWED},
            ["on battery, 43 % left: the clocks may reach 50% of what they can"],
        ),
        (SLOWED, ["the clocks may reach 50% of what they can"]),
        (HOT, ["too hot (x86_pkg_temp 96 °C)"]),
        ({**HOT, f"{ZONE}/temp": "94000"}, []),
        ({**HOT, f"{ZONE}/trip_point_0_temp": "-274000"}, []),
        ({f"{ZONE}/temp": "nonsense", f"{POWER}/BAT0/type": "\udcff"}, []),
    ],
)
def test_what_is_taken_is_said(tmp_path: Path, files: Mapping[str, str], said: list[str]) -> None:
    write(tmp_path, {name: text for name, text in files.items() if "\udcff" not in text})
    assert Watch(lambda: (), tmp_path).look().sentences == said


def test_what_others_take_is_told_from_what_is_ours(tmp_path: Path) -> None:
    clock = Clock()
    write(tmp_path, {"proc/stat": cpu(10, 10), "proc/7/stat": process(3)})
    watch = Watch(lambda: (7, 8), tmp_path, clock)
    assert watch.look() == Conditions(n_cores=2)
    write(tmp_path, {"proc/stat": cpu(12, 12), "proc/7/stat": process(4)})
    clock.now_s = 0.5
    assert watch.look().cores_taken == 0, "too soon for a look"
    clock.now_s = 2.0
    assert watch.look().cores_taken == pytest.approx(1.5)
    (said,) = watch.look().sentences
    assert said.startswith("other programs take 1.5 of 2 cores")


def test_cores_that_were_slowed_down_for_heat_are_seen(tmp_path: Path) -> None:
    clock = Clock()
    write(tmp_path, {f"{THROTTLE}/core_throttle_count": "5"})
    watch = Watch(lambda: (), tmp_path, clock)
    assert watch.look().sentences == []
    write(tmp_path, {f"{THROTTLE}/core_throttle_count": "6"})
    clock.now_s = 1.0
    assert watch.look().sentences == ["too hot: cores are slowed down"]
    clock.now_s = 2.0
    assert watch.look().sentences == []


def test_health_and_metrics_say_it() -> None:
    taken = Conditions(battery=13, clock_share=0.5, cores_taken=1.5, n_cores=2)
    with served({}, conditions=lambda: taken) as server:
        health = server.client.get("/health").json()
        assert health["conditions"] == taken.sentences
        assert health["gives_way"] == "battery 13 %: no draft model"
        text = server.client.get("/metrics").text
    assert "localspec_on_battery 1.0" in text
    assert "localspec_too_hot 0.0" in text
    assert "localspec_clock_share 0.5" in text
    assert "localspec_cores_taken 1.5" in text
    assert "localspec_threads_kept_share 1.0" in text
    assert "localspec_draft_model_rests 1.0" in text
