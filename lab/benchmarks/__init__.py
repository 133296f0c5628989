"""Measurements of speed, memory and sameness of texts: `python -m lab.benchmarks.NAME`."""
