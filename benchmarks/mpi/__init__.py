"""Programs with MPI tasks, at a size that can be measured: each in a sequential form, and with ranks."""
