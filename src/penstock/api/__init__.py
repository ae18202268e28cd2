"""What the user writes: decorators, directions, futures, synchronisation."""
