"""Objects as bytes, and the store that holds their large buffers."""
