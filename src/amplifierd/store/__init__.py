"""Sessions as they are kept: records, transcripts, events and holds. Nothing here runs one."""
