"""The file itself: connections, the schema and its migrations, and the single writer thread.

Takes a path and gives a `Database`; the other modules of `audit.store` define what is kept in it.
"""
