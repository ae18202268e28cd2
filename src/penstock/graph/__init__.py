"""From calls to a graph: which version each access reads, and which it makes."""
