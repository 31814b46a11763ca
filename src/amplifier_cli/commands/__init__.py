"""The commands, one file for each noun; a file is imported when its command is called."""
