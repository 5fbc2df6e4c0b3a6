from suites.common.data_files import load


def triples(content, key=""):
    """Every printed triple of male, female and diverse, with the keys that lead to it; their ± are left out."""
    if isinstance(content, dict) and content.keys() == {"m", "f", "d"}:
        yield key, content
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from triples(part, f"{key}/{name}") if not name.endswith("_pm") else ()
    elif isinstance(content, list):
        for number, part in enumerate(content):
            yield from triples(part, f"{key}/{number}")


def test_printed_probabilities_add_up_to_one_hundred():
    found = list(triples(load("published_results").content))
    assert len(found) == 2 * 10 * 2 + 10 * 7 * 2 * 2 + 2 * 2 * 7 * 2 * 2
    off = {name: sum(t.values()) for name, t in found if abs(sum(t.values()) - 100) > 0.21}
    assert not off  # three figures rounded to 0.1 may be off by 0.15
