"""The peers: one script each, run by the interpreter of that peer's own environment (see install_peers.sh)."""
