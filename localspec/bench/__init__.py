"""`localspec bench`: what drafting, or another setting, is worth on this machine, measured in neighbouring runs."""
