"""Everything one can do to a run, one file each; `transact` is the one door to `decide`."""
