"""A daemon as programs use it: its sessions look like those of the library."""
