"""Hostile input of every kind: `python -m lab.fuzz` for long, `test_short.py` in every test run.

A target takes bytes and does with them what the program does with a file or a pipe. It returns, or
raises an error that a user may read; anything else is a bug, and so is taking longer than a second.
"""
