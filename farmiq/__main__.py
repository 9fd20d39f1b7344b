"""`python -m farmiq` is `farmiq`."""

from farmiq.cli import main

main()
