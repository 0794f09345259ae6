"""Recorded behaviour: digests of simulated lives, logs of statements, and the documents that users meet.

`stepkeep lab golden record` writes them below `tests/golden/`. `stepkeep lab golden check` compares, and names the seed
or the document that differs, with its first difference. Nothing here judges what is right: it shows what has changed.
"""
