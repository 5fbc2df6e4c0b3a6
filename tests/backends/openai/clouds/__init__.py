"""Stand-ins for the clouds' own endpoints, whose tokens end."""
