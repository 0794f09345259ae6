"""Streams of runs: written by attempts while they run, read by position, and followed while they grow."""
