"""For tools that hand work to sessions of other agents: one engine, whatever face it has for the model."""
