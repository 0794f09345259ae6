"""The workstream dialect (seed 004): workstreams of tasks run by workers."""
