"""Draws every file of a folder, however many there are: shades of grey in the format PGM."""

import os
import sys

hours, pictures = sys.argv[1:]
for entry in os.scandir(hours):
    with open(entry.path) as file:
        word, maximum = file.readline().split()
        rows = [[float(value) for value in line.split()] for line in file]
    name = entry.name.replace(".txt", ".pgm")
    with open(os.path.join(pictures, name), "w") as file:
        file.write(f"P2\n# {word} {maximum}\n{len(rows[0])} {len(rows)}\n255\n")
        for row in rows:
            file.write(" ".join(str(round(value / float(maximum) * 255)) for value in row) + "\n")
    print(f"{name}: {word} {maximum}", flush=True)
