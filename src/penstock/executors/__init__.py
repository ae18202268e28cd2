"""From placement to execution: worker processes of this machine, and the caller's own thread for debugging."""
