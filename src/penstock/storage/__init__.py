"""Layers of storage as rules: which layer a path is on, what may move down and where to. No I/O."""
