"""`python -m audit.cli`: the command `audit`."""

from audit.cli import main

main()
