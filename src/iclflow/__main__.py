"""`python -m iclflow` is the command `iclflow`."""

from iclflow.cli import main

main()
