"""Benchmarks: the same workloads on both databases, beside peers and beside the bound: `stepkeep bench`."""
