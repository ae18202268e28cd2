"""Web archive: one task reads all records of a WARC file, alone or by ranks, others compute TF-IDF of its parts."""

from __future__ import annotations

import math
import random
import re
import time
from collections import Counter
from io import BytesIO
from typing import Any

import penstock
from penstock import FILE_IN, SCATTER, mpi, task

__all__ = ["read_alone", "read_together", "run", "write_archive"]

RANKS = 2
WORDS = [f"word{number}" for number in range(2_000)]

Pages = list[tuple[str, Counter[str]]]


def write_archive(path: str, pages: int, words: int) -> list[int]:
    """An archive of so many pages; gives where each record begins."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    chance = random.Random(11)
    offsets = []
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number in range(pages):
            text = " ".join(chance.choices(WORDS, k=chance.randint(1, 2 * words)))
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.0")
            record = writer.create_warc_record(
                f"http://site.example/{number}", "response", BytesIO(text.encode()), http_headers=headers
            )
            offsets.append(file.tell())
            writer.write_record(record)
    return offsets


def pages_of(path: str, offsets: list[int]) -> Pages:
    from warcio.archiveiterator import ArchiveIterator

    pages: Pages = []
    with open(path, "rb") as file:
        for offset in offsets:
            file.seek(offset)
            record = next(ArchiveIterator(file))
            words = Counter(re.findall(r"\w+", record.content_stream().read().decode()))
            pages.append((record.rec_headers.get_header("WARC-Target-URI"), words))
    return pages


@task(returns=list, path=FILE_IN)
def read_alone(path: str, offsets: list[int]) -> list[Pages]:
    half = -(-len(offsets) // RANKS)
    return [pages_of(path, offsets[start : start + half]) for start in range(0, len(offsets), half)]


@mpi(processes=RANKS)
@task(returns=list, path=FILE_IN, offsets=SCATTER)
def read_together(path: str, offsets: list[int]) -> Any:
    return pages_of(path, offsets)


@task
def frequencies_of(parts: list[Pages]) -> Counter[str]:
    return Counter(word for part in parts for _, words in part for word in words)


@task
def best_words(parts: list[Pages], number: int, frequencies: Counter[str], pages: int) -> dict[str, str]:
    best = {}
    for address, words in parts[number]:
        total = sum(words.values())
        best[address] = max(words, key=lambda word: (words[word] / total * math.log(pages / frequencies[word]), word))
    return best


def run(read: Any, path: str, offsets: list[int]) -> tuple[float, dict[str, str]]:
    """Seconds from the first call to the last result, and the word that marks each page."""
    began = time.perf_counter()
    parts: Any = read(path, offsets)
    frequencies: Any = frequencies_of(parts)
    found: list[Any] = [best_words(parts, number, frequencies, len(offsets)) for number in range(RANKS)]
    best = {address: word for part in penstock.wait_on(found) for address, word in part.items()}
    return time.perf_counter() - began, best
