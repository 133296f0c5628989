"""Grammars measured: what a JSON schema's grammar lets through, and what a mask costs."""
