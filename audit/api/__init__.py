"""The Python interface: what users import, in scripts, notebooks and their own tests.

Takes models and suites as objects (`audits`) or by name (`adhoc`); gives results with files, data frames and a view in
notebooks (`stored_result`). Users import these names from `audit` itself.
"""
