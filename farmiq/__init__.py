"""FarmIQ: from the barn to the screen."""

import os

__version__ = "0.1.0"

# Numpy's library for matrices waits for its threads before each fork, for ever if one of them is
# at work: a service that starts a child then would hang. One thread has nobody to wait for.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
