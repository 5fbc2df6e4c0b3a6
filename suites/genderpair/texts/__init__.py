"""What stands in a generated text: which descriptor it picks, whether it declines, and the same text of another group.

Takes texts and pairs of descriptors, gives what they say. Rules and word lists only; no model is asked.
"""
