"""Requests and responses on the wire: paths, bodies, and what a server accepts in them."""
