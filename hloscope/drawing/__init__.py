"""Graphviz pictures of a program: views say what to show, the rest how.

A view (:mod:`remat`, :mod:`scope`, :mod:`around`) is a function from analyses
to a :class:`~hloscope.drawing.picture.Picture`; :mod:`dot` writes it as DOT and
:mod:`render` has Graphviz make an image of it.
"""
