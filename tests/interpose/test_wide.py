"""Wide characters: nothing is lost on streams over managed files, and a reader sees the whole file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind


def test_wide_output_of_a_redirected_program(stage: Stage, program: Callable[..., str]) -> None:
    text = "".join(f"zeile {number} grüße\n" for number in range(2000))
    (stage.root / "seed").write_text(text)
    stage.run("maker", f"cat seed | {program('reverses')} > out")
    assert (stage.root / "out").read_text() == "".join(line[::-1] + "\n" for line in text.splitlines())
    assert stage.has("out", Flag.COMMITTED)


def test_wide_input_waits_for_the_whole_file(stage: Stage, program: Callable[..., str]) -> None:
    maker = stage.puppet("maker")
    maker("!out = os.open('out', os.O_WRONLY|os.O_CREAT|os.O_TRUNC)")
    maker("os.write(out, 'grüße\\n'.encode())")
    reader = stage.start("taker", f"exec {program('reverses')} < out", stdout=subprocess.PIPE)
    stage.await_wait(reader.pid, WaitKind.COMMITTED)
    maker("os.write(out, 'tschüs\\n'.encode()) and os.close(out)")
    assert reader.communicate(timeout=60)[0].decode() == "eßürg\nsühcst\n"


def test_wide_output_is_known_when_it_is_flushed(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("!f = ctypes.c_void_p(libc.fopen(b'out', b'w'))\nlibc.fputws(ctypes.c_wchar_p('wide'), f)")
    assert stage.info("out").solid == 0
    maker("libc.fflush(f)")
    assert stage.info("out").solid == 4
    maker("libc.fclose(f)")
    assert stage.has("out", Flag.COMMITTED)
