"""Plug-ins that come with localspec: a folder each, declared in pyproject.toml by the entry points that any package may use."""
