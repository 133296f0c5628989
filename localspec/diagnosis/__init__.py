"""Examines a machine: facts, and which of them are broken."""
