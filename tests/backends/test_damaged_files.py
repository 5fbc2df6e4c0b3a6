"""Mistyped paths and damaged files of local models: each is an error in a line with its cause, never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends import HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.local.causal import CausalBackend
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_model
from tests.backends.transformers.loopback_hub import point_at
from tests.servers import free_port

REQUEST = ScoreRequest("the police said that", (" she",))
Damage = Callable[[Path], object]


def written(name: str, content: str | bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(name: str, size: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def linked(name: str) -> Callable[[Path], None]:
    def to_itself(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(name)

    return to_itself


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def with_config(**options: object) -> Damage:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | options))

    return damage


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04junk")


def pickled_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")


def renamed(name: str, other: str) -> Damage:
    return lambda folder: (folder / name).rename(folder / other)


def divided(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def without_whole(index: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(index)

    return damage


def zip_cut(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + b"\0" * 500)


def empty_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


#: What was done to a folder → a word of the error.
FOLDERS: dict[str, tuple[Damage, str]] = {
    "config.json is not JSON": (written("config.json", "{"), "config.json cannot be loaded"),
    "config.json is empty": (written("config.json", "{}"), "model_type"),
    "config.json is a list": (written("config.json", "[]"), "config.json cannot be loaded"),
    "config.json has fewer layers than the weights": (
        with_config(num_hidden_layers=1),
        "fewer layers than its weights",
    ),
    "config.json has more layers than the weights": (with_config(num_hidden_layers=5), "more layers than its weights"),
    "config.json has more tokens than the weights": (with_config(vocab_size=400), "Give vocab_size = 280"),
    "config.json has fewer tokens than the weights": (with_config(vocab_size=200), "Give vocab_size = 280"),
    "an encoder": (with_config(model_type="bert"), "an encoder (bert), which reads a text in both directions"),
    "config.json is binary": (written("config.json", b"\xff\xfe\x00"), "config.json cannot be loaded"),
    "an unknown architecture": (with_config(model_type="frobnicate"), "'frobnicate' is unknown to transformers"),
    "code of its own": (
        with_config(model_type="frob", auto_map={"AutoConfig": "x.X", "AutoModelForCausalLM": "x.X"}),
        "Set trust_remote_code",
    ),
    "a negative size": (with_config(hidden_size=-1), "hidden size"),
    "a size in words": (with_config(num_hidden_layers="two"), "num_hidden_layers"),
    "another size": (with_config(hidden_size=64), "280 x 32 in the weights, and 280 x 64 by config.json"),
    "heads that do not divide": (with_config(num_attention_heads=7), "attention heads"),
    "an unknown activation": (with_config(hidden_act="frob"), "frob"),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), "a folder without a tokenizer"),
    "tokenizer.json is not JSON": (written("tokenizer.json", "{"), "its tokenizer cannot be loaded"),
    "tokenizer.json is empty": (written("tokenizer.json", "{}"), "its tokenizer cannot be loaded"),
    "tokenizer_config.json is not JSON": (written("tokenizer_config.json", "{"), "its tokenizer cannot be loaded"),
    "weights cut off": (cut("model.safetensors", 20_000), "is cut off: 20,000 of"),
    "weights cut in their header": (cut("model.safetensors", 40), "is cut off in its header, at 40 bytes"),
    "weights empty": (cut("model.safetensors", 0), "has only 0 bytes"),
    "weights that are a pointer": (written("model.safetensors", "version https://git-lfs"), "git lfs pull"),
    "weights that are a web page": (written("model.safetensors", "\n<!DOCTYPE html>"), "a web page in place of"),
    "weights under another name": (renamed("model.safetensors", "weights.safetensors"), "no weights under a name"),
    "a part of the weights gone": (divided, "names 2 files of weights, of which model-2.safetensors is not there"),
    "an index that is none": (without_whole("{"), "cannot be read as an index"),
    "a pickle cut off": (zip_cut, "pytorch_model.bin is cut off"),
    "an empty pickle": (empty_pickle, "pytorch_model.bin is empty"),
    "quantised by what is not here": (with_config(quantization_config={"quant_method": "gptq", "bits": 4}), "gptq"),
    "weights gone": (without("model.safetensors"), "a folder without weights"),
    "weights that link to themselves": (linked("model.safetensors"), "a folder without weights"),
    "a pickle that is none": (pickled, "cannot be loaded"),
    "a pickle with code": (pickled_code, "holds code (os.system), which is not run (Give its weights as safetensors)"),
}
#: A file of safetensors without any.
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
ADAPTERS: dict[str, tuple[str | None, str]] = {
    "a folder that is not there": (None, "no adapter_config.json there"),
    "a config that is not JSON": ("{", "adapter_config.json is not JSON"),
    "a config that is a list": ("[]", "adapter_config.json names no peft_type"),
    "a config without a method": ("{}", "adapter_config.json names no peft_type"),
    "layers that the model lacks": ('{"peft_type": "LORA", "r": 4, "target_modules": ["nope"]}', "nope"),
    "an unknown method": ('{"peft_type": "WHAT"}', "'WHAT' is unknown to PEFT"),
    "a prompt": ('{"peft_type": "PROMPT_TUNING"}', "PROMPT_TUNING is no change of the weights"),
}
#: Adapters' weights that cannot be loaded: name, content, what is told.
ADAPTER_WEIGHTS = {
    "cut off": ("adapter_model.safetensors", NO_TENSORS[:9], "adapter_model.safetensors is cut off"),
    "empty": ("adapter_model.safetensors", b"", "adapter_model.safetensors has only 0 bytes"),
    "an LFS pointer": ("adapter_model.bin", b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
    "renamed": ("adapter.safetensors", NO_TENSORS, "no weights under a name that PEFT reads"),
}
NAMES = {
    "gpt2": "the hub cannot be reached",
    "nobody/nothing": "the hub cannot be reached",
    "nowhere/at/all": "no such file or folder",
    "org/name@v2": "Give 'org/name' and revision=\"v2\"",
    "hf:org/name": "Give 'org/name' for a model of the hub",
    "org/name:Q4_K_M": "hf download org/name FILE",
    "./nowhere": "no such file or folder",
    "a--b/..c": "neither a folder nor a hub id",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("whole"))


def said(make: Callable[[], CausalBackend]) -> str:
    """The error that a run of this backend meets, before or while the model loads."""
    try:
        backend = make()
        backend.check()
        backend.describe_blocking()
    except ConfigError as error:
        return str(error)
    answers = backend.run_blocking([REQUEST, REQUEST])
    backend.close_blocking()
    errors = [str(answer) for answer in answers if isinstance(answer, BackendError)]
    assert len(errors) == 2
    return errors[0]


def is_clear(told: str, says: str) -> None:
    assert says in told
    assert "\n" not in told
    assert len(told) < 500


@pytest.mark.parametrize("done", FOLDERS)
def test_a_damaged_folder_is_told_with_its_cause(done: str, whole: Path, tmp_path: Path) -> None:
    damage, says = FOLDERS[done]
    damage(Path(shutil.copytree(whole, tmp_path / "model")))
    told = said(lambda: HFBackend(tmp_path / "model", threads=1))
    is_clear(told, says)
    assert str(tmp_path / "model") in told


#: What shows only in the weights themselves, or where the model is made.
AT_LOAD = {
    "an unknown activation",
    "heads that do not divide",
    "a pickle that is none",
    "a pickle with code",
    "tokenizer.json is not JSON",
    "tokenizer.json is empty",
    "tokenizer_config.json is not JSON",
}


@pytest.mark.parametrize("done", [done for done in FOLDERS if done not in AT_LOAD])
def test_what_files_show_is_told_before_they_are_read(done: str, whole: Path, tmp_path: Path) -> None:
    damage, says = FOLDERS[done]
    damage(Path(shutil.copytree(whole, tmp_path / "model")))
    with pytest.raises(ConfigError) as caught:
        HFBackend(tmp_path / "model", threads=1).check()
    is_clear(str(caught.value), says)


@pytest.mark.parametrize("other", ["wider", "deeper"])
def test_an_adapter_of_another_model_is_told_at_once(other: str, whole: Path, tmp_path: Path) -> None:
    import peft
    import transformers

    changed = {"wider": {"hidden_size": 48, "head_dim": 16}, "deeper": {"num_hidden_layers": 5}}[other]
    config = transformers.AutoConfig.from_pretrained(whole, **changed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    told = (tmp_path / "adapter" / "adapter_config.json").read_text()
    named = json.loads(told) | {"base_model_name_or_path": "org/base"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(named))
    with pytest.raises(ConfigError) as caught:
        HFBackend(whole, adapter=tmp_path / "adapter", threads=1).check()
    is_clear(str(caught.value), "it does not fit this model")
    assert "org/base" in str(caught.value)


@pytest.mark.parametrize("done", ADAPTERS)
def test_a_damaged_adapter_is_told_with_its_cause(done: str, whole: Path, tmp_path: Path) -> None:
    config, says = ADAPTERS[done]
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
        (tmp_path / "adapter_model.safetensors").write_bytes(NO_TENSORS)
    told = said(lambda: HFBackend(whole, adapter=tmp_path, threads=1))
    is_clear(told, says)
    assert "adapter = " in told


@pytest.mark.parametrize("done", [done for done in ADAPTERS if done != "layers that the model lacks"])
def test_what_an_adapters_config_shows_is_told_at_once(done: str, whole: Path, tmp_path: Path) -> None:
    config, says = ADAPTERS[done]
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
        (tmp_path / "adapter_model.safetensors").write_bytes(NO_TENSORS)
    with pytest.raises(ConfigError) as caught:
        HFBackend(whole, adapter=tmp_path, threads=1).check()
    is_clear(str(caught.value), says)


@pytest.mark.parametrize("done", ADAPTER_WEIGHTS)
def test_what_an_adapters_weights_show_is_told_at_once(done: str, whole: Path, tmp_path: Path) -> None:
    name, content, says = ADAPTER_WEIGHTS[done]
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}')
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        HFBackend(whole, adapter=tmp_path, threads=1).check()
    is_clear(str(caught.value), says)
    assert caught.value.field == "adapter"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_nowhere_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    is_clear(said(lambda: HFBackend(name, threads=1)), NAMES[name])


#: Options as they are often written → a part of what is told.
WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"model": ""}, "model = '': empty. Give a folder, a GGUF file or a hub id."),
    "a space": ({"model": " "}, "model = ' ': empty"),
    "no adapter": ({"adapter": ""}, "adapter = '': empty"),
    "no revision": ({"revision": ""}, "revision = '': empty"),
    "gigs": ({"device_map": "auto", "max_memory": {"cpu": "1 gigs"}}, 'or such as "20GiB"'),
    "no device of a part": ({"device_map": {"": "gpu"}}, "Give a number (of a CUDA device), cpu, mps, cuda:N or disk"),
    "8 bits as a table": ({"quantization": {"load_in_8bit": True}}, "load_in_8bit is bitsandbytes-int8"),
    "8 bits as transformers had it": ({"load_in_8bit": True}, "Did you mean 'quantization'?"),
    "torch_dtype": ({"torch_dtype": "float16"}, "Did you mean 'dtype'?"),
}


@pytest.mark.parametrize("done", WRITTEN)
def test_an_option_written_as_elsewhere_is_told(done: str, whole: Path) -> None:
    options, says = WRITTEN[done]
    with pytest.raises(ConfigError) as caught:
        HFBackend(**{"model": whole, "threads": 1, **options}).check()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_a_folder_names_the_folder(whole: Path) -> None:
    told = said(lambda: HFBackend(whole / "model.safetensors", threads=1))
    is_clear(told, f"a file of a model's folder. Give that folder: {str(whole)!r}")


COMMITS = ("0123456" + "a" * 33, "0123456" + "b" * 33, "7654321" + "c" * 33)


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("7654321", ""),
        ("0123456", "2 commits of org/name begin so in the cache"),
        ("fffffff", f"no such revision of org/name is in the cache at {{cache}}, and HF_HUB_OFFLINE is set. Give a "
         f"whole commit, such as {COMMITS[2]}"),
        ("v2", "no such revision of org/name is in the cache"),
    ],
    ids=["one", "several", "none", "a tag"],
)  # fmt: skip
def test_a_shortened_revision_is_looked_for_in_the_cache(
    revision: str, says: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for commit in COMMITS:
        shutil.copytree(whole, tmp_path / "models--org--name" / "snapshots" / commit)
    backend = HFBackend("org/name", revision=revision, threads=1)
    if not says:
        assert backend.describe_blocking().fingerprint["revision"] == COMMITS[2]
        return
    with pytest.raises(ConfigError) as caught:
        backend.describe_blocking()
    assert caught.value.field == "revision"
    is_clear(str(caught.value), says.format(cache=tmp_path))


def test_a_folder_above_the_model_names_the_model(whole: Path, tmp_path: Path) -> None:
    Path(shutil.copytree(whole, tmp_path / "snapshots" / "abc"))
    is_clear(said(lambda: HFBackend(tmp_path, threads=1)), f"Did you mean {str(tmp_path / 'snapshots' / 'abc')!r}?")


@pytest.mark.parametrize(("adapter", "says"), [("whole", "a whole model, not an adapter"), (None, "no such folder")])
def test_what_is_no_adapter_is_told_as_such(adapter: str | None, says: str, whole: Path, tmp_path: Path) -> None:
    is_clear(said(lambda: HFBackend(whole, adapter=whole if adapter else tmp_path / "none", threads=1)), says)


def test_a_hub_id_is_no_gguf_file() -> None:
    is_clear(said(lambda: LlamaCppBackend("org/name", threads=1)), "hf download org/name FILE")


def test_an_adapter_given_as_a_model_says_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    is_clear(said(lambda: HFBackend(tmp_path, threads=1)), "adapter=")


def test_an_attention_that_a_model_lacks_is_no_damage(tmp_path: Path) -> None:
    folder = save_tiny_model("bloom", tmp_path)
    told = said(lambda: HFBackend(folder, attn_implementation="sdpa", threads=1))
    is_clear(told, "attn_implementation")
    assert "damaged" not in told


def test_a_misspelt_adapter_without_a_network_is_told(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(monkeypatch, f"http://127.0.0.1:{free_port()}", tmp_path)
    monkeypatch.setattr("backends.transformers.hub.WAITS", (0.01, 0.01))
    told = said(lambda: HFBackend(whole, adapter="my/adaptr", threads=1))
    is_clear(told, "the hub cannot be reached")
    assert "there is no such folder" in told


@pytest.mark.parametrize("engine", [HFBackend, LlamaCppBackend])
def test_a_name_too_long_for_a_path_is_told(engine: type[CausalBackend]) -> None:
    is_clear(said(lambda: engine("x" * 5000, threads=1)), "cannot be looked up (File name too long)")  # type: ignore[call-arg]


@pytest.mark.parametrize("adapter", ["nobody/adapter", "an-adapter"])
def test_an_adapter_that_the_hub_does_not_give_is_told(
    adapter: str, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    is_clear(said(lambda: HFBackend(whole, adapter=adapter, threads=1)), "the hub cannot be reached")


@pytest.mark.parametrize("engine", [HFBackend, LlamaCppBackend])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content[:-2000], "cut off"),
        (lambda content: content[:60], "not a readable GGUF file"),
        (lambda content: content[:4], "not a readable GGUF file"),
        (lambda content: b"GGML" + content[4:], "not a GGUF file"),
        (lambda content: content[:4] + b"\x63\0\0\0" + content[8:], "version 99"),
        (lambda content: content[:8] + b"\xff" * 16 + content[24:], "not a readable GGUF file"),
        (lambda content: content.replace(b"llama", b"frobb"), "frobb"),
    ],
    ids=["cut off", "header cut", "magic alone", "another magic", "another version", "huge counts", "unknown"],
)
def test_a_damaged_gguf_file_is_told_with_its_cause(
    engine: type[CausalBackend], change: Callable[[bytes], bytes], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    save_tiny_llama_gguf(path)
    path.write_bytes(change(path.read_bytes()))
    told = said(lambda: engine(path, threads=1))  # type: ignore[call-arg]
    is_clear(told, says)
