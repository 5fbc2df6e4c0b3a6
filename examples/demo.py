"""The main use case: all of OccuGender, on one model with two engines, and on a second model. `make engines` runs it.

    audit run examples/demo.py

The models are small and come with the Python packages of the extra `embedded`, so this runs without any download.
SmolLM2 is listed twice: quantised on llama.cpp, and the same weights on transformers in float32. These two differ
in the engine, not in the model.
"""

from audit import Audit
from backends import HFBackend, LlamaCppBackend
from backends.embedded import gemma3_path, smollm2_path
from suites import OccuGender

audit = Audit(
    title="OccuGender on three small models",
    models={
        "SmolLM2-135M, 4-bit (llama.cpp)": LlamaCppBackend(smollm2_path()),
        "SmolLM2-135M, 4-bit (transformers)": HFBackend(smollm2_path(), dtype="float32"),
        "Gemma-3-270M, 4-bit (llama.cpp)": LlamaCppBackend(gemma3_path()),
    },
    suites=[OccuGender()],
    db="audit-out/demo.db",
    out="audit-out/demo",
)
