"""A class of objects to be stored, in a module that every process can import."""

from typing import Any

from penstock import PersistentObject


class Held(PersistentObject):
    """An array."""

    def __init__(self, array: Any) -> None:
        self.array = array
