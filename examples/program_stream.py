"""Three stages at once: a program writes readings, another one converts them, a function sums up what has arrived.

None of them knows of the others: they read and write files. Each starts when the one before it has begun to write.
"""

from __future__ import annotations

from typing import IO

from penstock import STREAM_IN, STREAM_OUT, program, start, task, wait_on


@program(
    """for hour in $(seq 0 {hours}); do
           echo "$hour $((50 + hour * 7 % 30))"
           sleep 0.02
       done > {readings}""",
    readings=STREAM_OUT,
)
def measure(hours: int, readings: str) -> None:
    """Hour and temperature in Fahrenheit."""


@program(
    "awk '{{ print $1, ($2 - 32) * 5 / 9; fflush() }}' {readings} > {converted}",
    readings=STREAM_IN,
    converted=STREAM_OUT,
    sizes="so_far",
)
def convert(readings: str, converted: str) -> None:
    """The same in Celsius."""


@task(converted=STREAM_IN)
def warmest(converted: IO[bytes]) -> tuple[float, int]:
    return max((float(celsius), int(hour)) for hour, celsius in map(bytes.split, converted))


if __name__ == "__main__":
    start(cpus=3)
    measure(23, "readings.txt")
    convert("readings.txt", "celsius.txt")
    celsius, hour = wait_on(warmest("celsius.txt"))
    print(f"{celsius:.1f} degrees at {hour} o'clock")
