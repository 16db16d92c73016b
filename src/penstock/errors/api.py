"""ApiError: a request to the JetStream API failed. `jetstream.py` has one class for each error."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.errors.base import PenstockError, rebuild

__all__ = [
    "ApiError",
]


class ApiError(PenstockError):
    """A request failed; `str()` gives the description alone.

    A subclass defines code, err_code and description; an instance may have a more exact description.
    """

    code: ClassVar[int] = 500
    err_code: ClassVar[int] = 10051
    description: str = "general error"

    def __init__(self, description: str | None = None) -> None:
        if description is not None:
            self.description = description
        super().__init__(self.description)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.__dict__ | {"description": self.description})

    def __str__(self) -> str:
        return self.description

    def to_json(self) -> dict[str, int | str]:
        """The `error` object of an API response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}
