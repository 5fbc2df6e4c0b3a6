"""What to audit: models, suites and the rules of the comparison; from Python or from a TOML file.

Every error that can be detected without a model is reported here, before one is loaded.
"""

from audit.config.files import load_audit
from audit.config.kinds import SUITE_FILES, made, maker_by_name, own_kinds
from audit.config.options import AuditConfig

__all__ = ["SUITE_FILES", "AuditConfig", "load_audit", "made", "maker_by_name", "own_kinds"]
