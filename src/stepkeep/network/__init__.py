"""Requests to the outside: which addresses may be reached, a client that keeps to it, and signatures of webhooks.

It knows no run, no store and no worker. HTTP steps, sinks and inbound webhooks call it.
"""
