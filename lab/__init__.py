"""Instruments that are not shipped with localspec: they measure it, break it and compare it with others.

Tests run the short forms of `lab.faults`, `lab.fuzz` and `lab.kills`, and the policy in the worlds of `lab.simulator`.
"""
