"""The demonstration: three small workflows, their handlers, and the tour that shows them."""
