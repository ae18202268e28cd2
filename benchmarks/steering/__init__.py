"""How far a learned ``storage_bw`` is from the best static one: scenarios, simulated and with real processes."""
