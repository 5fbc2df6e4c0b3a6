"""Options that users write: checked by pydantic, each error reported as a `ConfigError` with field, value and hint.

Takes constructors, tables and TOML texts; gives checked values (`models`) and the line of each value (`toml_lines`).
"""

from backends.options.models import (
    AS_TUPLE,
    OnError,
    Options,
    Place,
    Table,
    check_fields,
    checked_options,
    located_error,
    refused,
    refused_at,
    some_of,
)

__all__ = [
    "AS_TUPLE",
    "OnError",
    "Options",
    "Place",
    "Table",
    "check_fields",
    "checked_options",
    "located_error",
    "refused",
    "refused_at",
    "some_of",
]
