"""Stored sessions as anyone may read them: their directories, the index, and lists.

Running and changing sessions is the daemon's; this package lies at the bottom and imports the standard library only, so
that a list of sessions costs little more than starting the interpreter.
"""
