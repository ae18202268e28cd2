"""Ready tasks and free nodes in, placements out. A policy is a score; a ready set finds the best one."""
