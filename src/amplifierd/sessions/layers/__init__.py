"""What stands around the calls of an orchestrator."""
