"""Sentences about what was found: summaries, the first page, comparisons, rankings, and cautions about weak claims."""
