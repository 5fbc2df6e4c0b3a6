"""The file itself: connecting, schema and its migrations, and the one thread that writes.

Takes a path, gives a `Database`; what is kept in it is the other modules' of `audit.store`.
"""
