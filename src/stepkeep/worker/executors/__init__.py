"""What can do a step's work, one file each; the contract is `Executor` in `executor`."""
