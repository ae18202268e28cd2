"""``python -m penstock.cli`` is the command ``penstock``."""

from penstock.cli import main

main()
