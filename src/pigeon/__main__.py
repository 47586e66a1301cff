"""`python -m pigeon` is the program `pigeon`."""

from pigeon.cli.main import main

main()
