"""A small library of distributed data sets on collections: map, filter, flat_map, reduce_by_key, and what ends them.

A data set is a list of partitions, and a partition is a future. Steps on one partition after the other are one task
each; a shuffle gives each task a collection to fill, with one place per receiver, and each receiver a collection of
what was put there for it.
"""

from operator import add

from penstock import COLLECTION_IN, COLLECTION_OUT, task, wait_on

TEXT = """the river feeds the gate and the gate feeds the turbine
the turbine turns while the valley sleeps and the river rises
a gate that is closed feeds nothing and a valley that sleeps sees nothing"""


@task
def kept(items):
    return list(items)


@task
def applied(partition, step):
    return list(step(partition))


@task(places=COLLECTION_OUT)
def split_by_key(partition, combine, places):
    """Join what has the same key here, and put each key where its receiver looks."""
    parts = [{} for _ in places]
    for key, value in partition:
        part = parts[hash_of(key) % len(parts)]
        part[key] = combine(part[key], value) if key in part else value
    places[:] = parts


@task(parts=COLLECTION_IN)
def merged(parts, combine):
    """What all partitions have for the keys of one receiver."""
    result = {}
    for part in parts:
        for key, value in part.items():
            result[key] = combine(result[key], value) if key in result else value
    return sorted(result.items())


@task(partitions=COLLECTION_IN)
def folded(partitions, combine):
    from functools import reduce

    return reduce(combine, [item for partition in partitions for item in partition])


def hash_of(key):
    """The same in every process, unlike that of strings."""
    import zlib

    return zlib.crc32(repr(key).encode())


class DataSet:
    """Items in partitions; every step gives a new data set at once, and tasks make it."""

    def __init__(self, partitions):
        self.partitions = partitions

    @classmethod
    def of(cls, items, partitions=4):
        return cls([kept(items[i::partitions]) for i in range(partitions)])

    def map_partitions(self, step):
        return DataSet([applied(partition, step) for partition in self.partitions])

    def map(self, function):
        return self.map_partitions(lambda items: map(function, items))

    def filter(self, predicate):
        return self.map_partitions(lambda items: filter(predicate, items))

    def flat_map(self, function):
        return self.map_partitions(lambda items: (found for item in items for found in function(item)))

    def reduce_by_key(self, combine):
        count = len(self.partitions)
        table = [[None] * count for _ in self.partitions]
        for partition, places in zip(self.partitions, table, strict=True):
            split_by_key(partition, combine, places)
        # Each place of the table is a datum of its own: a receiver waits for its column, and for nothing else.
        return DataSet([merged([places[i] for places in table], combine) for i in range(count)])

    def reduce(self, combine):
        return folded(self.partitions, combine).result()

    def count(self):
        return sum(wait_on(self.map_partitions(lambda items: [len(items)]).collect()))

    def collect(self):
        return [item for partition in wait_on(self.partitions) for item in partition]


words = DataSet.of(TEXT.splitlines()).flat_map(str.split)
counts = words.map(lambda word: (word, 1)).reduce_by_key(add)
frequent = counts.filter(lambda pair: pair[1] > 2)
for word, number in sorted(frequent.collect(), key=lambda pair: (-pair[1], pair[0])):
    print(f"{number:>3} {word}")
print(f"{words.count()} words, {counts.count()} different ones")

numbers = DataSet.of(range(100_000), partitions=8)
squares = numbers.filter(lambda n: n % 3 == 0).map(lambda n: n * n)
print(f"sum of the squares: {squares.reduce(add):,}")
print(f"as it should be: {squares.reduce(add) == sum(n * n for n in range(0, 100_000, 3))}")

by_rest = dict(numbers.map(lambda n: (n % 7, n)).reduce_by_key(max).collect())
print(f"the largest of each rest by seven: {[by_rest[rest] for rest in range(7)]}")
