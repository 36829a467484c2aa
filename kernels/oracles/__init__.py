"""What each family has to give, in numpy and float64, one file a family. Imports no JAX.

Written from the formulas and not from the implementations: gradients are worked
out by hand, and tests hold them against finite differences.
"""
