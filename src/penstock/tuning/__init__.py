"""Auto constraints: how much of a device one I/O task should reserve, learned while the program runs."""
