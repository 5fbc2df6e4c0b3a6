"""Reading what a model wrote: where a word stands in a text, and what was thought before the answer."""
