"""Power: what the machine takes from this program, and what gives way to it."""
