"""The executors, one file each; the contract is `Executor` in `executor`."""
