"""The kinds of question that benchmarks and files share: which sentence is likelier, which answer is given.

A published benchmark adds its reader and its metric (`suites.benchmarks`), a file its declarations (`suites.custom`).
"""
