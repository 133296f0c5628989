"""Instruments that are not shipped with localspec: they measure it, break it and compare it with others.

Tests run the short forms of `lab.faults` and `lab.fuzz`.
"""
