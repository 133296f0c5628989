"""`localspec` with the trap set, also where Python was started before: run as a program."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parent / "trap" / "sitecustomize.py"))
    runpy.run_module("localspec", run_name="__main__", alter_sys=True)
