"""What the program may tell whom, and who may read what it writes: see `docs/threat-model.md`."""
