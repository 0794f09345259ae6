"""Everything that can be done to a run. Every change goes through `pipeline/transact.py`; no state is assigned here."""
