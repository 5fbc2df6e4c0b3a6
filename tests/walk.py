"""What runs from a suite to the first figure, for 1,000 questions to two fake models: `python -m tests.walk`.

Counted are our modules with a function that is called, and the calls, a generator's resumptions too. Code that is
imported alone does not count. Printed are each module's and the most called functions' calls.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from audit import Audit
from backends import FakeBackend
from suites import OccuGender

ROOT = Path(__file__).parents[1]
OURS = tuple(f"{ROOT / folder}{os.sep}" for folder in ("audit", "backends", "suites"))


def main() -> None:
    calls = Counter[CodeType]()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(OURS):
            calls[code] += 1

    with tempfile.TemporaryDirectory() as folder:
        models = {name: FakeBackend(name) for name in ("one", "two")}
        audit = Audit(models, [OccuGender()], db=f"{folder}/a.db", out=folder, limit=1000)
        threading.setprofile(count)
        sys.setprofile(count)
        audit.run_sync()
        sys.setprofile(None)
    modules = Counter[str]()
    for code, n in calls.items():
        modules[os.path.relpath(code.co_filename, ROOT)] += n
    for module, n in modules.most_common():
        print(f"{n:8} {module}")
    for code, n in calls.most_common(40):
        print(f"{n:8} {os.path.relpath(code.co_filename, ROOT)}:{code.co_firstlineno} {code.co_qualname}")
    print(f"{len(modules)} modules, {len(calls)} functions, {calls.total()} calls")


if __name__ == "__main__":
    main()
