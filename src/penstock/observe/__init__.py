"""The event log, and the views that are read from it: live progress and the closing summary."""
