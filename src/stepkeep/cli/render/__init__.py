"""Pictures of runs for terminals: pure functions from the views that operations make to rich renderables."""
