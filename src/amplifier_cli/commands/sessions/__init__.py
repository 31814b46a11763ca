"""`amplifier session …`, a file for each group of commands."""
