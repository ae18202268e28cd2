"""Streams between nodes: servers that tell each other what is born and committed, and fetch bytes over HTTP."""
