"""The published schemas of result files, as validators."""

import json
from pathlib import Path

import jsonschema_rs

SCHEMAS = Path(__file__).resolve().parents[2] / "bench" / "data" / "schemas"


def schema(name: str) -> jsonschema_rs.Validator:
    """Raises ValidationError from its `validate`."""
    return jsonschema_rs.validator_for(json.loads((SCHEMAS / f"{name}.json").read_text()))
