import pytest

from audit.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.db"


@pytest.fixture
def store(path):
    with Store.open(path) as opened:
        yield opened
