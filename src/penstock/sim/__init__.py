"""The simulator: drives the unchanged engine on virtual time, with nodes and storage devices that are only computed."""
