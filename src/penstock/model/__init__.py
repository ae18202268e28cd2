"""The vocabulary: frozen values shared by every later package, and the wire format. No behaviour."""
