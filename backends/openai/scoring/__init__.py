"""The routes to a log-probability that servers offer."""
