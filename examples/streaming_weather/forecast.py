"""Heat that spreads over a plate: one file of temperatures for each hour."""

import os
import sys
import time

folder, size = sys.argv[1], 24
plate = [[100.0 if 8 <= x < 16 and 8 <= y < 16 else 0.0 for x in range(size)] for y in range(size)]
for hour in range(6):
    time.sleep(0.3)  # the hours of computing that an hour of weather takes
    with open(os.path.join(folder, f"hour-{hour}.txt"), "w") as file:
        file.write("maximum  unknown\n")
        for row in plate:
            file.write(" ".join(f"{value:.3f}" for value in row) + "\n")
        file.seek(0)
        file.write(f"maximum {max(map(max, plate)):8.3f}\n")
    for _ in range(8):
        plate = [
            [
                (plate[y - 1][x] + plate[(y + 1) % size][x] + plate[y][x - 1] + plate[y][(x + 1) % size]) / 4
                for x in range(size)
            ]
            for y in range(size)
        ]
