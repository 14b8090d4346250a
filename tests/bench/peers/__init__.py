"""Peers beside us: each file compares the results first, then times both in turn in one run."""
