"""The native format: its models, its checks, and how the kernel's definition is built from it."""
