"""`python -m localspec`: the command line."""

from localspec.cli import main

main()
