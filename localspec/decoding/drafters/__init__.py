"""Drafters: whoever proposes tokens, one file each, and a register of them."""
