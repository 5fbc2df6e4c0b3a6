"""How to name your own models: a hub id or folder, a GGUF file, a vLLM or llama.cpp server, a hosted API.

    audit run examples/own_models.py --models local --limit 200

Only the models named with --models are loaded, so a config may list more than one machine can hold.
"""

from audit import Audit
from backends import HFBackend, LlamaCppBackend, OpenAIBackend
from suites import OccuGender

audit = Audit(
    models={
        # A Hugging Face id, a folder, or a folder with a PEFT adapter on top.
        "local": HFBackend("HuggingFaceTB/SmolLM2-135M-Instruct", dtype="bfloat16"),
        # A quantised file for llama.cpp; n_gpu_layers=-1 puts all layers on the GPU.
        "quantised": LlamaCppBackend("models/llama-3-8b-instruct.Q4_K_M.gguf", n_gpu_layers=-1),
        # A vLLM or llama.cpp server of your own. A probe tests empirically what it reports.
        "served": OpenAIBackend("http://127.0.0.1:8000/v1", model="meta-llama/Meta-Llama-3-8B-Instruct"),
        # A hosted API. The key is read from the environment and stored nowhere.
        "hosted": OpenAIBackend("https://api.openai.com/v1", model="gpt-4o-mini", api_key_env="OPENAI_API_KEY"),
    },
    suites=[OccuGender()],
)
