"""What guards the edges: text, secrets, names and files from outside. It imports no other package of Stepkeep."""
