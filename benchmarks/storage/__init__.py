"""Programs that write checkpoints, and the emulated device they write to: what the storage rows measure.

rows/hmmer.py ─► sweep ─► one process per way of declaring the I/O: once ─► shapes (the programs) on device
"""
