"""Heavier targets, and the reader and writer of GGUF files that makes them."""
