"""`python -m audit`: the command `audit`."""

from audit.cli import main

main()
