"""What covers a path: patterns, sets of names, conflicts between rules, and the same answers for C."""
