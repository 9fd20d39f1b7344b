"""FarmIQ: from the barn to the screen."""

__version__ = "0.1.0"
