"""Git worktrees of workstreams: one branch and one worktree per run, a merge plan, the merge, and the cleanup."""
