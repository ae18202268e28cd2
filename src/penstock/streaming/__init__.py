"""Streaming between unmodified programs that exchange files.

``language`` reads the coordination file into a ``Workflow``; ``rules`` says what covers a path; ``check`` explains it.
The preloaded library delays the programs' calls by those rules, the server decides what is committed.
"""
