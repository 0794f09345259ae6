"""The `run` dialect: seed 001's templates, RunStatus and StepStatus, and the shapes of its service."""
