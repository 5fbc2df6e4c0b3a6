"""Finding out by experiment what a server can do and whether it tells the truth."""
