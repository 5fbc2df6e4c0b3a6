"""What people read: findings, comparisons, gate decisions and forecasts. The wording stands in ``templates/words``.

Takes values of `audit.results`, `audit.analysis` and `audit.prepare`, gives text; computes no figure.
"""
