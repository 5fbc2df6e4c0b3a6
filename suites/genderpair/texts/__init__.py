"""Reads generated texts: which descriptor a text picks, and whether it declines.

Takes texts and pairs of descriptors; gives picks and refusals. Rules and word lists only, no model.
"""
