"""Put and get of persistent objects in a folder, against a pickle in a file."""

import os
import pickle
import tempfile
from typing import Any

from benchmarks.persistent import measure, rows

ROWS = rows("local", __name__)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ps-") as folder:

        def put(name: str, array: Any) -> None:
            path = os.path.join(folder, name)
            with open(f"{path}.new", "wb") as file:
                pickle.dump(array, file, 5)
            os.rename(f"{path}.new", path)

        def get(name: str) -> Any:
            with open(os.path.join(folder, name), "rb") as file:
                return pickle.load(file)

        measure("local", f"local:{folder}/store", put, get)


if __name__ == "__main__":
    main()
