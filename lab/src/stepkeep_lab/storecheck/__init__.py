"""Checks of the real stores: compared with the model store, with concurrent locks, and with planted bugs that must
be found."""
