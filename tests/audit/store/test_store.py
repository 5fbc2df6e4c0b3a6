"""The store as a whole: backups."""

from __future__ import annotations

import asyncio
import os

import pytest

from audit.store import Store
from backends.errors import ConfigError
from tests.audit.store.entries import answers_by_key, entry


async def test_a_backup_taken_while_writing_is_sound(path, tmp_path):
    with Store.open(path) as store:
        await store.answers.write([entry(i) for i in range(50)])

        async def write_on():
            for i in range(50, 250):
                await store.answers.write([entry(i)])

        writing = asyncio.create_task(write_on())
        await asyncio.sleep(0.02)
        await asyncio.to_thread(store.backup, tmp_path / "copy.db")
        await writing
        with pytest.raises(ConfigError, match="already exists"):
            store.backup(tmp_path / "copy.db")
    with Store.open(tmp_path / "copy.db") as copy:
        assert copy.answers.verify().sound
        assert 100 <= copy.stats()["answers"] <= 500
        assert len(answers_by_key(copy, [k for i in range(50) for k in entry(i).question.keys])) == 100
    assert sorted(os.listdir(tmp_path)) == ["audit.db", "copy.db"]
