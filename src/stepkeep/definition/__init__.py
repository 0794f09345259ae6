"""What people write, in YAML, JSON or Python, read into the canonical definition. It knows no database."""
