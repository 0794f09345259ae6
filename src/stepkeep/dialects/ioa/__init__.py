"""The ioa dialect (seed 000): workflow resources of `ioa.dev/v0.2`, their state machines and their shapes."""
