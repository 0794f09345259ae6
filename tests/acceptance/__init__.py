"""What the product promises, shown on real databases and real processes."""
