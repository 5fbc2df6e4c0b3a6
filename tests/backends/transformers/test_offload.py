"""Parts of models on the disk: each loaded model has a folder of its own there."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from backends import ConfigError, HFBackend
from backends.transformers.loading import loading
from backends.transformers.offload import OwnFolder
from tests.backends.transformers.reference import REQUESTS, scores

PARTS = {
    "model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
    "model.layers": "disk",
}  # fmt: skip


def as_pickle(folder: Path, place: Path, scale: float) -> Path:
    """The same model with its weights scaled, in a file of torch's: such parts are written to the disk anew."""
    shutil.copytree(folder, place)
    weights = {name: value * scale for name, value in load_file(folder / "model.safetensors").items()}
    (place / "model.safetensors").unlink()
    torch.save(weights, place / "pytorch_model.bin")
    return place


def test_models_that_share_an_offload_folder_keep_their_parts(folders: dict[str, Path], tmp_path: Path) -> None:
    first, second = (as_pickle(folders["llama"], tmp_path / f"m{scale}", scale) for scale in (1, 3))
    backends = [
        HFBackend(folder, threads=1, device_map=PARTS, offload_folder=tmp_path / "off") for folder in (first, second)
    ]
    backends[0].load()
    scores(backends[1], REQUESTS)
    assert scores(backends[0], REQUESTS) == scores(HFBackend(first, threads=1), REQUESTS)
    for backend in backends:
        backend.close_blocking()


def test_parts_on_the_disk_are_removed_with_their_model(tmp_path: Path) -> None:
    models = [torch.nn.Linear(1, 1)]
    with OwnFolder(str(tmp_path / "off")) as place:
        assert place.path is not None
        (place.path / "part").write_bytes(b"1")
        place.keep_for(models[0])
    assert (place.path / "part").exists()
    models.clear()
    assert not place.path.exists()


def test_parts_of_a_model_that_failed_to_load_are_removed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), OwnFolder(str(tmp_path)):
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_parts_that_a_killed_process_left_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom backends.transformers.offload import OwnFolder\n"
        "with OwnFolder(sys.argv[1]):\n    os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (mine := tmp_path / "of-the-user").mkdir()
    assert len(list(tmp_path.iterdir())) == 2
    with OwnFolder(str(tmp_path)) as place:
        assert set(tmp_path.iterdir()) == {mine, place.path}


def test_an_offload_folder_that_cannot_be_made_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    backend = HFBackend(folders["llama"], threads=1, device_map=PARTS, offload_folder=file / "off")
    with pytest.raises(ConfigError) as error:
        backend.check()
    assert error.value.field == "offload_folder"
    with pytest.raises(ConfigError) as error:
        backend.load()
    assert error.value.field == "offload_folder"


@pytest.mark.parametrize(
    "cause",
    [OSError(errno.ENOSPC, "No space left on device"), ValueError("I/O error: No space left on device")],
)
def test_a_full_disk_is_not_blamed_on_the_models_files(cause: Exception) -> None:
    with pytest.raises(ConfigError) as error, loading("model", "m", "the model", "Fetch it again"):
        raise cause
    assert "disk is full" in str(error.value)
    assert "again" not in str(error.value)
