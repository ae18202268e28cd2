"""Which words mark a page, while the archive is still being read: ranks hand over each record as they have it.

The archive is a true WARC file, written here first, with records of very different lengths. The ranks of one MPI task
read it. They are an I/O task, so they take no computing units: these go to the tasks that count the words of a record,
and start as soon as it is there. Once all are counted, others find the word with the highest TF-IDF of each page.
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

from penstock import COLLECTION_IN, FILE_IN, io, mpi, ready_value, task, wait_on

PAGES = 50
RANKS = 2
TOPICS = {
    "rivers": ["river", "flood", "bank", "delta", "stream", "spring", "meander", "current"],
    "turbines": ["turbine", "blade", "rotor", "shaft", "power", "grid", "head", "load"],
    "gates": ["gate", "valve", "sluice", "spill", "weir", "lock", "seal", "hoist"],
}
COMMON = ["the", "water", "and", "a", "valley", "of", "in", "is", "to", "for", "with"]


def write_archive(path, pages, median):
    """An archive of pages, each about one topic; gives where each record begins, and how long it is.

    Half of the pages have more words than ``median``, and a few have very many.
    """
    chance = random.Random(7)
    records = []
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number in range(pages):
            topic = list(TOPICS)[number % len(TOPICS)]
            words = chance.choices([*TOPICS[topic], *COMMON], k=int(median * chance.lognormvariate(0, 1)) + 50)
            page = f"<html><title>{topic}</title><body>{' '.join(words)}</body></html>".encode()
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.0")
            about = {"WARC-Date": "2024-01-01T00:00:00Z"}
            name = f"http://{topic}.example/{number}"
            begin = file.tell()
            writer.write_record(
                writer.create_warc_record(
                    name, "response", BytesIO(page), warc_headers_dict=about, http_headers=headers
                )
            )
            records.append((begin, file.tell() - begin))
    return records


def page_of(file, begin, length):
    """One page of an archive: its address and its content."""
    file.seek(begin)
    record = next(ArchiveIterator(BytesIO(file.read(length))))
    return record.rec_headers.get_header("WARC-Target-URI"), record.content_stream().read()


def share(count, rank, ranks):
    """The records of a rank: as many for each, and what is left over for the last."""
    each = count // ranks
    return range(rank * each, count if rank == ranks - 1 else (rank + 1) * each)


@io
@mpi(processes=RANKS)
@task(returns=PAGES, path=FILE_IN)
def read_records(path, records):
    comm = mpi.comm()
    with open(path, "rb") as file:
        for index in share(len(records), comm.rank, comm.size):
            ready_value(page_of(file, *records[index]), index)


@task
def term_frequencies(page):
    """How often each word is in a page, as a part of all its words."""
    address, content = page
    words = Counter(re.findall(r"\w+", re.sub(r"<[^>]*>", " ", content.decode()).lower()))
    total = sum(words.values())
    return address, {word: count / total for word, count in words.items()}


@task(pages=COLLECTION_IN)
def rarities(pages):
    """The inverse document frequency of each word."""
    found_in = Counter(word for _, frequencies in pages for word in frequencies)
    return {word: math.log(len(pages) / count) for word, count in found_in.items()}


@task
def best_word(page, rarity):
    address, frequencies = page
    return address, min(frequencies, key=lambda word: (-frequencies[word] * rarity[word], word))


def best_words(pages):
    """The word with the highest TF-IDF of each page, of pages that come from elsewhere."""
    counted = [term_frequencies(page) for page in pages]
    rarity = rarities(counted)
    return dict(wait_on([best_word(page, rarity) for page in counted]))


def plainly(path, records):
    """The same in one process."""
    with open(path, "rb") as file:
        counted = [term_frequencies.__wrapped__(page_of(file, *record)) for record in records]
    rarity = rarities.__wrapped__(counted)
    return dict(best_word.__wrapped__(page, rarity) for page in counted)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "pages.warc.gz"
        records = write_archive(archive, PAGES, 500)
        best = best_words(read_records(archive, records))
        same = best == plainly(archive, records)

    print(f"{len(best)} pages, read by {RANKS} ranks")
    print(f"as computed in one process: {same}")
    for topic in TOPICS:
        words = Counter(word for address, word in best.items() if topic in address)
        print(f"{topic}: {', '.join(sorted(words))}")
