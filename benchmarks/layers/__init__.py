"""Programs that write results of one or two sizes, and the three emulated layers they write to.

rows/io_schedulers.py ─► runs ─► one process per I/O scheduler, with and without flushing: once ─► shapes on devices
"""
