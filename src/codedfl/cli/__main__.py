"""``python -m codedfl.cli`` is the same as ``codedfl``."""

from codedfl.cli import main

main()
