"""Tests empirically what a server can do and whether it tells the truth.

Takes a server; gives a `ProbeReport` with the capabilities that were proven, and a canary that is asked again later.
"""
