"""The HTTP service: routes derived from rows of operations, and by hand what is no call of one operation.

It decides nothing; each route calls one operation of an engine.
"""
