"""`localspec bench`: what drafting earns on this machine, measured in neighbouring runs."""
