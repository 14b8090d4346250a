"""Bars: the sources they come from and the checks they pass."""
