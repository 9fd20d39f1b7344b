"""Benchmarks: ours beside a ceiling in the same run; ratios, because machines are noisy."""
