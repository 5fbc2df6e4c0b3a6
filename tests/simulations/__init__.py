"""Long simulations that prove what intervals and decisions promise: commands, with short forms in the tests."""
