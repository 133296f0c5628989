"""The composition root: plan what to load, load it, and have it observed."""
