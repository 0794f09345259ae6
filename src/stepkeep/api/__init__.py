"""The HTTP service: one file per resource; a route calls one operation of an engine and has one model."""
