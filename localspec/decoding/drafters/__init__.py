"""Drafters propose tokens: one file each, and a register of them."""
