"""What people write, in YAML, JSON or Python; it all ends in the kernel's canonical definition."""
