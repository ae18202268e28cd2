"""Steps that run what other steps make, and programs that the library cannot get into, in ``penstock stream run``.

The maker of a program begins only when it was said that somebody waits for it; so nothing else can have been run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.streaming.flows import Flow, once

from penstock.observe import records
from penstock.observe.log import read_log

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="no C compiler: compiled programs are NOT tested"
)


def workflow(maker: str, user: str, outputs: str = '"tools/*", "tool"') -> str:
    return f"""
        name = "made"
        [[step]]
        name = "make"
        command = '''{maker}'''
        output = [{outputs}]
        [[step.stream]]
        files = [{outputs}]
        commit = "on_close"
        fire = "no_update"
        [[step]]
        name = "use"
        command = {user}
        input = [{outputs}]
        output = ["result"]
    """


def script(word: str) -> str:
    return f"echo '#!/bin/sh' > tool; echo 'echo {word} > result' >> tool; chmod +x tool"


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "user",
    [
        '["./tool"]',
        '["./tool"]\n# --memory',
        '["sh", "-c", "./tool"]',
        '"./tool"',
        '"exec ./tool"',
        '"./tool; true"',
        '["PYTHON", "-c", "import subprocess; subprocess.check_call([\'./tool\'])"]',
        '["tool"]\nenv = { PATH = "/no/such/folder:.:/bin:/usr/bin" }',
        '["./own"]',
        '["./own-env"]\nenv = { PATH = ".:/bin:/usr/bin" }',
    ],
)
def test_a_step_runs_what_another_makes_each_time_anew(flow: Flow, tmp_path: Path, user: str) -> None:
    placement = "--memory" if "--memory" in user else "--in-place"
    for name, line in (("own", f"#!{flow.folder}/tool\n"), ("own-env", "#!/usr/bin/env tool\n")):
        flow.write(name, line).chmod(0o755)
    for run in ("first", "second"):
        told = tmp_path / f"told-{run}"
        # Opened once: with two closes it would be final after the first.
        make = f"{once(told)}; {{ echo '#!/bin/sh'; echo 'echo {run} > result'; }} > tool; chmod +x tool"
        flow.toml(workflow(make, user).replace('name = "made"', 'name = "made"\npermanent = ["result", "tool"]'))
        flow.run_until_told("for tool to be", told, placement, "--stall", "0.1s").expect()
        assert flow.read("result") == f"{run}\n"


@needs_compiler
def test_a_compiled_program_and_its_library(flow: Flow, tmp_path: Path) -> None:
    """The linker makes a program executable after it has closed it."""
    flow.write("main.c", "#include <stdio.h>\nconst char *word(void);\nint main(void) { puts(word()); return 0; }\n")
    build = "cc -shared -fPIC word.c -o tools/word.so && cc main.c -o tool tools/word.so -Wl,-rpath,{}/tools"
    (flow.folder / "tools").mkdir()
    for run in ("first", "second"):
        told = tmp_path / f"told-{run}"
        flow.write("word.c", f'const char *word(void) {{ return "{run}"; }}\n')
        flow.toml(workflow(f"{once(told)}; {build.format(flow.folder)}", '"./tool > result"'))
        flow.run_until_told("for tool to be", told, "--stall", "0.1s").expect()
        assert flow.read("result") == f"{run}\n"


def test_a_program_that_no_step_makes_in_the_end(flow: Flow) -> None:
    flow.toml(workflow("true", '["./tool"]'))
    ended = flow.run().expect(127)
    assert "step 'use' exited with status 127" in ended.err and "tool" in ended.err


def test_an_old_program_that_cannot_be_streamed_says_nothing_of_the_new_one(flow: Flow) -> None:
    flow.write("tool", "").write_bytes(b"\x7fELF" + bytes(100))
    (flow.folder / "tool").chmod(0o755)
    flow.toml(
        workflow(
            script("new")
            .replace("echo '#!/bin/sh' > tool; echo", "{ echo '#!/bin/sh'; echo")
            .replace(">> tool;", "; } > tool;"),
            '["./tool"]',
        )
    )
    flow.run().expect()
    assert flow.read("result") == "new\n"


def test_exec_waits_for_a_program_that_another_makes(flow: Flow) -> None:
    flow.toml(workflow("true", '["./tool"]'))
    flow.write("tool", "#!/bin/sh\necho old > result\n").chmod(0o755)
    server = flow.start("serve", "flow.toml", "--stall", "0.1s")
    use = flow.start("exec", "--app", "use", "--", "./tool")
    assert server.stderr is not None
    assert any("for tool to be made" in line for line in server.stderr)
    make = "printf '#!/bin/sh\\necho new > result\\n' > tool; chmod +x tool"
    flow.ended(flow.start("exec", "--app", "make", "--", "sh", "-c", make)).expect()
    flow.ended(use).expect()
    assert flow.read("result") == "new\n"
    missing = flow.ended(flow.start("exec", "--app", "use", "--", "./no-such-program")).expect(2)
    assert "there is no program './no-such-program'" in missing.err
    server.send_signal(signal.SIGINT)
    flow.ended(server).expect()


# --- programs that the library cannot get into ------------------------------------------------------------------------

COPIES = """
#include <stdio.h>
int main(int argc, char **argv) {
    char text[64];
    FILE *in = fopen("data", "r");
    size_t got = in ? fread(text, 1, sizeof text, in) : 0;
    fwrite(text, 1, got, stdout);
    return in == NULL;
}
"""
READS = """
    name = "rights"
    [[step]]
    name = "make"
    command = '''exec > data; echo WORD; GATE; echo end'''
    output = ["data"]
    [[step.stream]]
    files = ["data"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "use"
    command = "./reads.sh > result"
    input = ["data"]
    output = ["result"]
"""


@pytest.fixture
def privileged(flow: Flow) -> Flow:
    """A script that runs, twice, a program with more rights than its user: the loader takes no library along."""
    flow.write("copies.c", COPIES)
    subprocess.run(["cc", "copies.c", "-o", "copies"], cwd=flow.folder, check=True)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away: programs with more rights are NOT tested")
    os.chown(flow.folder / "copies", -1, 12345)
    (flow.folder / "copies").chmod(0o2755)
    flow.write("reads.sh", "#!/bin/sh\n./copies\n./copies > /dev/null\n").chmod(0o755)
    return flow


@needs_compiler
def test_a_program_with_more_rights_in_a_script_reads_what_batch_shows(privileged: Flow, tmp_path: Path) -> None:
    for run in ("first", "second"):
        told = tmp_path / f"told-{run}"
        privileged.toml(READS.replace("WORD", run).replace("GATE", once(told)))
        ended = privileged.run_until_told("which has more rights", told).expect()
        assert privileged.read("result") == f"{run}\nend\n"
        (line,) = [line for line in ended.err.splitlines() if "has more rights" in line]
        for word in (
            "use (process ",
            f"starts {privileged.folder}/copies",
            "begins when all steps before that one are over",
        ):
            assert word in line
        logged = max(privileged.folder.glob(".penstock/rights-*/events.jsonl"))
        warned = [event.message for event in read_log(str(logged)) if isinstance(event, records.Warned)]
        assert len([text for text in warned if "has more rights" in text]) == 1


@needs_compiler
def test_a_program_with_more_rights_in_a_script_ends_a_strict_run(privileged: Flow, tmp_path: Path) -> None:
    privileged.toml(READS.replace("WORD", "word").replace("GATE", "true"))
    ended = privileged.run("--strict")
    assert ended.status != 0
    assert "--strict: use (process " in ended.err and "it was not started" in ended.err
    assert not (privileged.folder / "result").exists() or privileged.read("result") == ""
