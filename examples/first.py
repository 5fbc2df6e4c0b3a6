"""A first result: one small model, a sample of OccuGender's implicit questions. `make demo` begins with it.

    audit run examples/first.py

The store is that of examples/demo.py, which then asks only what is new.
"""

from audit import Audit
from backends import HFBackend
from backends.embedded import smollm2_path
from suites import OccuGender

audit = Audit(
    title="A first look at SmolLM2",
    models={"SmolLM2-135M, 4-bit": HFBackend(smollm2_path(), dtype="float32")},
    suites=[OccuGender(("implicit",))],
    limit=100,
    db="audit-out/demo.db",
    out="audit-out/first",
)
