from suites.common.data_files import load


def printed_triples():
    content = load("published_results").content
    for bias in ("explicit", "implicit"):
        for entry in content["occugender"][bias]:
            for group in ("female", "male"):
                yield f"OccuGender {entry['model']} {bias} {group}", entry[f"{group}_dominated"]
    for model, rows in content["occugender_debiasing"]["models"].items():
        for row in rows:
            for bias in ("explicit", "implicit"):
                for group in ("female", "male"):
                    yield f"Appendix E {model} {row['debiasing']} {bias} {group}", row[bias][f"{group}_dominated"]
    for model, biases in content["debiasing_positions"]["models"].items():
        for bias, rows in biases.items():
            for row in rows:
                for position in ("without_dialogue", "with_dialogue"):
                    for group in ("female", "male"):
                        yield (
                            f"positions {model} {row['debiasing']} {bias} {position} {group}",
                            row[position][f"{group}_dominated"],
                        )


def test_printed_probabilities_add_up_to_one_hundred():
    triples = list(printed_triples())
    assert len(triples) == 2 * 10 * 2 + 10 * 7 * 2 * 2 + 2 * 2 * 7 * 2 * 2
    off = {name: sum(t.values()) for name, t in triples if abs(sum(t.values()) - 100) > 0.21}
    assert not off  # three figures rounded to 0.1 may be off by 0.15
