"""GenderPair: which of two descriptors a model picks for a gender target."""
