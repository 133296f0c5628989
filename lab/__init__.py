"""Instruments that are not shipped with localspec: they measure it, break it and compare it with others.

`localspec bench` borrows `lab.peers` and `lab.synthetic` where it runs from a checkout; tests run the
short forms of `lab.faults`, `lab.fuzz` and `lab.kills`, and the policy in the worlds of `lab.simulator`.
"""
