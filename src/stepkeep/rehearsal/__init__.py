"""What may become of a run before there is one: every failure path of a definition, walked through the kernel."""
