"""Several daemons on one store: who they are, how they speak to each other, and what becomes of one that ends."""
