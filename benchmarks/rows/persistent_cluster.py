"""Put and get of persistent objects in a cluster of three Redis servers, against pickles under keys of the same."""

import pickle
from typing import Any
from urllib.parse import urlsplit

from benchmarks.persistent import cut, measure, rows

ROWS = rows("cluster", __name__)


def main() -> None:
    from redis.cluster import RedisCluster

    from penstock.persistent.servers import start_servers

    servers = start_servers("redis-start:3")
    password = urlsplit(servers.url).password
    host, port = servers.url.rpartition("@")[2].split(",")[0].split(":")
    client: Any = RedisCluster(host=host, port=int(port), password=password, socket_timeout=120.0)
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
        measure("cluster", servers.url, put, get)
    finally:
        client.close()
        servers.stop()


if __name__ == "__main__":
    main()
