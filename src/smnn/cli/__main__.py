"""`python -m smnn.cli` does what `smnn` does."""

from smnn.cli import main

main()
