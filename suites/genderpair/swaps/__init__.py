"""The same text about a person of another gender group, and whether it can be trusted.

Takes a text and who it is about; gives its versions about the other groups, or the reason why there are none: it is
swapped only if every gendered word stands in a form known to be safe. Word lists and neighbouring words, no model.
"""
