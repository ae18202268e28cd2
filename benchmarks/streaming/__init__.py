"""Workflows of programs that exchange files, run one after the other and streamed: shapes, runs and figures of them."""
