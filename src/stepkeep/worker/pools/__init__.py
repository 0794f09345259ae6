"""Pools: where jobs run; the contract is `Place` in `executor`."""
