"""The kinds of question that benchmarks and files share: the likelier sentence, the answer given, the text written.

Takes sets of sentences, questions with answers, or openings of texts; gives items, rows and their common figures. A
published benchmark adds its reader and its metric (`suites.benchmarks`), a file its declarations (`suites.custom`).
"""
