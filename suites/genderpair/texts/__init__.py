"""Reads generated texts: which descriptor a text picks, whether it declines, and its version about another group.

Takes texts and pairs of descriptors; gives picks, refusals and swapped texts. Rules and word lists only, no model.
"""
