"""Heavier targets, and the reader and writer of GGUF files that makes them."""

from lab.synthetic.heavier import heavier

__all__ = ["heavier"]
