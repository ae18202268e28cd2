"""The coordination file: read in either form, checked, and turned into a ``Workflow``."""
