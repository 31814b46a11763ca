"""The command `amplifier`: agents in a terminal."""
