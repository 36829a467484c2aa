"""Analyses of one module, one file each; the rules that use them stand in ``rules``."""
