"""The output that a program requires of a run, as a type or a JSON Schema, and the conversion of the value to that
type.

Dataclasses, msgspec structs, typed dictionaries and types like `list[str]` are read by msgspec. Models of pydantic are
read by their own methods, other types with such models in them by pydantic if the program has imported it; it is never
imported here.
"""

from __future__ import annotations

import sys
from types import FunctionType, MethodType
from typing import Any

from pigeon.wire import codec


class OutputType:
    """The type or JSON Schema given as `output`; raises `TypeError` for anything else."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._adapter: Any = None
        self.schema: dict[str, Any] = self._schema_of(given)

    def convert_output(self, output: Any) -> Any:
        """The output of a run in the given type; raises `ValueError` if the type requires more than its schema."""
        import msgspec

        if isinstance(self._given, dict):
            return output
        if self._adapter is not None:
            return self._adapter(output)
        codec.prepare_type(self._given)
        return msgspec.convert(output, self._given, str_keys=True)

    def _schema_of(self, given: Any) -> dict[str, Any]:
        if isinstance(given, dict):
            return given
        if isinstance(given, type) and hasattr(given, "model_json_schema") and hasattr(given, "model_validate"):
            self._adapter = given.model_validate
            schema: dict[str, Any] = given.model_json_schema()
            return schema
        import msgspec

        # pydantic would treat a function as the type of its result.
        if given is None or isinstance(given, str | bytes | int | float | list | tuple | FunctionType | MethodType):
            raise TypeError(f"output must be a type or a JSON Schema, not {given!r:.100}")
        try:
            return msgspec.json.schema(given)
        except Exception as error:  # msgspec raises various errors: TypeError, NameError of a hint, RuntimeError
            pydantic = sys.modules.get("pydantic")
            if pydantic is None:
                raise TypeError(f"output={given!r:.100} cannot be used: {error}") from error
        return self._build_pydantic_schema(pydantic, given)

    def _build_pydantic_schema(self, pydantic: Any, given: Any) -> dict[str, Any]:
        try:
            adapter = pydantic.TypeAdapter(given)
            schema: dict[str, Any] = adapter.json_schema()
        except Exception as error:
            raise TypeError(f"output={given!r:.100} cannot be used: {error}") from error
        self._adapter = adapter.validate_python
        return schema
