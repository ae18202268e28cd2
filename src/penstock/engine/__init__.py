"""The heart: ``Engine.handle(event, now)`` answers with commands. Pure: no clock, no thread, no file."""
