"""Does the simulator tell the truth? Programs are run for real, then simulated from their own logs, then compared.

rows/validation.py ─► comparison ─► one process per run: once ─► programs; its log ─► simulated ─► predicted makespan
"""
