"""Everything that can be done to a run, one file each; every change goes through `transact`."""
