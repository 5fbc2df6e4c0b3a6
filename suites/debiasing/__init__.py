"""DebiasingPositions: whether a debiasing prompt helps, and where it stands."""
