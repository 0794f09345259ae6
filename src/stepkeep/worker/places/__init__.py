"""Where jobs run; the contract is `Place` in `executor`."""
