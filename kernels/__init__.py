"""Kernels in several implementations each, with a float64 oracle; reached through the registry."""
