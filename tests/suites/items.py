"""Looking up the items of a suite."""


def by_id(suite):
    return {item.id: item for item in suite.items()}
