"""Benchmarks: ours beside a ceiling or a peer in the same run; ratios, because machines are noisy.

`edge.py` puts one run together; `results.py` says what was reached. Others add their own beside.
"""
