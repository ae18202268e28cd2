"""Which words mark a page: an MPI task reads the records of a web archive, sequential tasks compute TF-IDF.

The archive is a true WARC file, written here first. Each rank seeks and reads its share of the records, and counts
their words.
"""

import math
import random
import re
import tempfile
from collections import Counter
from io import BytesIO
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from penstock import FILE_IN, SCATTER, mpi, task, wait_on

PAGES = 60
TOPICS = {
    "rivers": ["river", "flood", "bank", "delta", "stream", "spring", "meander", "current"],
    "turbines": ["turbine", "blade", "rotor", "shaft", "power", "grid", "head", "load"],
    "gates": ["gate", "valve", "sluice", "spill", "weir", "lock", "seal", "hoist"],
}
COMMON = ["the", "water", "and", "a", "valley", "of", "in", "is", "to", "for", "with"]


def write_archive(path):
    """An archive of pages, each about one topic, of very different lengths; gives where each record begins."""
    chance = random.Random(7)
    offsets = []
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number in range(PAGES):
            topic = list(TOPICS)[number % len(TOPICS)]
            words = chance.choices([*TOPICS[topic], *COMMON], k=chance.randint(50, 3000))
            page = f"<html><title>{topic}</title><body>{' '.join(words)}</body></html>".encode()
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.0")
            about = {"WARC-Date": "2024-01-01T00:00:00Z"}
            name = f"http://{topic}.example/{number}"
            record = writer.create_warc_record(
                name, "response", BytesIO(page), warc_headers_dict=about, http_headers=headers
            )
            offsets.append(file.tell())
            writer.write_record(record)
    return offsets


def pages_of(path, offsets):
    """Pages of an archive, each as its address and the count of its words."""
    pages = []
    with open(path, "rb") as file:
        for offset in offsets:
            file.seek(offset)
            record = next(ArchiveIterator(file))
            text = re.sub(r"<[^>]*>", " ", record.content_stream().read().decode())
            words = Counter(re.findall(r"\w+", text.lower()))
            pages.append((record.rec_headers.get_header("WARC-Target-URI"), words))
    return pages


@mpi(processes=2)
@task(returns=list, path=FILE_IN, offsets=SCATTER)
def read_records(path, offsets):
    return pages_of(path, offsets)


@task
def document_frequencies(parts):
    return Counter(word for part in parts for _, words in part for word in words)


@task
def best_words(part, frequencies, pages):
    """The word with the highest TF-IDF of each page."""
    best = {}
    for address, words in part:
        total = sum(words.values())
        scores = {word: count / total * math.log(pages / frequencies[word]) for word, count in words.items()}
        best[address] = min(scores, key=lambda word: (-scores[word], word))
    return best


@task
def part_of(parts, rank):
    return parts[rank]


with tempfile.TemporaryDirectory() as folder:
    archive = Path(folder) / "pages.warc.gz"
    offsets = write_archive(archive)
    parts = read_records(archive, offsets)
    frequencies = document_frequencies(parts)
    found = [best_words(part_of(parts, rank), frequencies, PAGES) for rank in range(2)]
    best = {address: word for part in wait_on(found) for address, word in part.items()}

    # The same, plainly.
    pages = pages_of(archive, offsets)
    plain = best_words.__wrapped__(pages, document_frequencies.__wrapped__([pages]), PAGES)

print(f"{len(best)} pages, read by 2 ranks")
print(f"as computed in one process: {best == plain}")
for topic in TOPICS:
    words = Counter(word for address, word in best.items() if topic in address)
    print(f"{topic}: {', '.join(sorted(words))}")
