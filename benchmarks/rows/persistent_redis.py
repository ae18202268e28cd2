"""Put and get of persistent objects in a Redis server, against pickles under keys of the same server."""

import pickle
from typing import Any

from benchmarks.persistent import cut, measure, rows

ROWS = rows("redis", __name__)


def main() -> None:
    import redis

    from penstock.persistent.servers import start_servers

    servers = start_servers("redis-start:")
    client: Any = redis.Redis.from_url(servers.url, socket_timeout=120.0)

    pieces_of: dict[str, int] = {}

    def put(name: str, array: Any) -> None:
        pieces = cut(array)
        pieces_of[name] = len(pieces)
        for number, piece in enumerate(pieces):
            client.set(f"{name}:{number}", piece)

    def get(name: str) -> Any:
        pieces = [client.get(f"{name}:{number}") for number in range(pieces_of[name])]
        return pickle.loads(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    try:
        measure("redis", servers.url, put, get)
    finally:
        client.close()
        servers.stop()


if __name__ == "__main__":
    main()
