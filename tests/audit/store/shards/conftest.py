import pytest

from audit.store import Store


@pytest.fixture
def sharded(path):
    with Store.open(path, shards=4) as opened:
        yield opened
