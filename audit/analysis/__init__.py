"""From stored answers to figures, comparisons and decisions."""
