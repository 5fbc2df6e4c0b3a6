"""The line of each value of a TOML text, whatever its form."""

from backends.options.toml_lines import lines_of

TEXT = '''a = 1 # one
"b c".d = [
  "x", # "y",
  {e = """
three lines]
""", f = 'z'},
]
[g.h]
i = """a
"""
[[j]]
k = {l = [1, [2,
3]]}
[j.m]
n = 2
[[j]]
k = 1
'''


def test_each_value_has_its_line():
    found = lines_of(TEXT)
    assert {place: found[place] for place in found if len(place) != 1} == {
        ("b c", "d"): 2,
        ("b c", "d", 0): 3,
        ("b c", "d", 1): 4,
        ("b c", "d", 1, "e"): 4,
        ("b c", "d", 1, "f"): 6,
        ("g", "h"): 8,
        ("g", "h", "i"): 9,
        ("j", 0): 11,
        ("j", 0, "k"): 12,
        ("j", 0, "k", "l"): 12,
        ("j", 0, "k", "l", 0): 12,
        ("j", 0, "k", "l", 1): 12,
        ("j", 0, "k", "l", 1, 0): 12,
        ("j", 0, "k", "l", 1, 1): 13,
        ("j", 0, "m"): 14,
        ("j", 0, "m", "n"): 15,
        ("j", 1): 16,
        ("j", 1, "k"): 17,
    }
