"""The driver of the engine on real time, and its surroundings: settings, machine facts, the current session."""
