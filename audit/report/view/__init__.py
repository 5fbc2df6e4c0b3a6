"""A store in a browser: runs, models, suites, items and answers, two models side by side, and the trend.

Takes a store open for reading, gives a web application that only reads. `audit view` serves it on loopback.
"""
