"""Asking models what is not stored yet: plan, pace, retries, progress."""
