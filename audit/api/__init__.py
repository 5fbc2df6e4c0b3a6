"""The Python interface: what users import, in scripts, notebooks and their own tests.

Takes models and suites as objects (`audits`) or by name (`adhoc`). Users import the names from `audit` itself.
"""
