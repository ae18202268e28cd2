"""Programs and libraries that another step makes: whatever executes or loads them waits until they are whole.

Each is tried on a first run, with nothing there, and on a second one, where the file of the first would be taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.interpose.stage import PATIENCE, Puppet, Stage, aged

from penstock.streaming.table_records import AppState, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
EXECVE = {"x86_64": 59, "aarch64": 221}[os.uname().machine]
OLD, NEW = 3, 7
runs = pytest.mark.parametrize("second_run", [False, True])


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return aged(path)


def script(status: int, interpreter: str = "/bin/sh") -> str:
    return f"#!{interpreter}\nexit {status}\n"


def taker_of(stage: Stage) -> Puppet:
    """A consumer with words for starting programs; the managed directory is in its PATH, behind another."""
    taker = stage.puppet("taker")
    taker("!import subprocess")
    taker("!def ended(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
    taker("!def words(*given): return (ctypes.c_char_p * (len(given) + 1))(*given, None)")
    taker(f"!EXECVE = {EXECVE}")
    taker(f"!os.environ['PATH'] = '/no/such/folder:{stage.root}:' + os.environ['PATH']")
    taker("!kept = words(*[os.fsencode(f'{name}={value}') for name, value in os.environ.items()])")
    return taker


def make(maker: Puppet, name: str, text: str, mode: int = 0o755) -> None:
    """In two writes, so that it is there before it is whole."""
    half = len(text) // 2
    maker(f"!out = os.open({name!r}, {MAKE}, {mode})\nos.fchmod(out, {mode})\nos.write(out, {text[:half].encode()!r})")
    maker.stage.await_wait_for(name, WaitKind.COMMITTED)
    maker(f"os.write(out, {text[half:].encode()!r}) and os.close(out)")


@pytest.mark.one_in(3)
@runs
@pytest.mark.parametrize(
    "start",
    [
        "ended(os.posix_spawn('./out.p', ['p'], os.environ))",
        "ended(os.posix_spawnp('out.p', ['p'], os.environ))",
        "ended(os.fork() or os.execv('./out.p', ['p']))",
        "ended(os.fork() or os.execve('./out.p', ['p'], os.environ))",
        "ended(libc.fork() or libc.execvp(b'out.p', words(b'p')))",
        "ended(libc.fork() or libc.execvpe(b'out.p', words(b'p'), kept))",
        "ended(libc.fork() or libc.execl(b'./out.p', b'p', None))",
        "ended(libc.fork() or libc.execlp(b'out.p', b'p', None))",
        "ended(libc.fork() or libc.execle(b'./out.p', b'p', None, kept))",
        "ended(libc.fork() or libc.execveat(libc.open(b'.', 0), b'out.p', words(b'p'), kept, 0))",
        "ended(libc.fork() or libc.execveat(-100, b'out.p', words(b'p'), kept, 0))",
        "ended(libc.fork() or libc.fexecve(libc.open(b'out.p', 0), words(b'p'), kept))",
        "ended(libc.fork() or libc.execveat(libc.open(b'out.p', 0), b'', words(b'p'), kept, 0x1000))",
        "ended(libc.vfork() or libc.execve(b'./out.p', words(b'p'), kept))",
        "ended(libc.fork() or libc.syscall(EXECVE, b'./out.p', words(b'p'), kept))",
        "subprocess.call(['./out.p'])",
        "subprocess.call(['out.p'])",
        "subprocess.call(['./out.p'], close_fds=False)",
        "subprocess.call('./out.p', shell=True)",
        "subprocess.call('out.p; exit $?', shell=True)",
        "subprocess.call(['bash', '-c', './out.p; exit $?'])",
        "subprocess.call(['bash', '-c', 'out.p'])",
        "subprocess.call(['env', 'out.p'])",
        "subprocess.call(['perl', '-e', 'exec \"./out.p\"'])",
        "os.waitstatus_to_exitcode(os.system('./out.p'))",
        "os.waitstatus_to_exitcode(libc.pclose(ctypes.c_void_p(libc.popen(b'./out.p', b'r'))))",
        "subprocess.call(['sh', '-c', './out.l; exit $?'])",
    ],
)
def test_every_way_to_execute_waits_for_the_whole_program(stage: Stage, start: str, second_run: bool) -> None:
    os.symlink("out.p", stage.root / "out.l")
    if second_run:
        executable(stage.root / "out.p", script(OLD))
    maker, taker = stage.puppet("maker"), taker_of(stage)
    if "out.l" in start:
        maker("os.unlink('out.l') or os.symlink('out.p', 'out.l')")
    taker.send(start)
    stage.await_wait_for("out.p", WaitKind.BORN)
    make(maker, "out.p", script(NEW))
    assert taker.answer() == NEW


@pytest.mark.one_in(3)
@runs
@pytest.mark.parametrize(
    "start",
    [
        "subprocess.call(['./out.p'])",
        "subprocess.call(['out.p'])",
        "subprocess.call(['sh', '-c', 'out.p; exit $?'])",
        "subprocess.call(['bash', '-c', 'out.p; exit $?'])",
        "subprocess.call(['bash', '-c', 'test -x out.p && ./out.p'])",
        "subprocess.call(['sh', '-c', '$(command -v ./out.p)'])",
        "subprocess.call([__import__('shutil').which('out.p')])",
        "libc.access(b'out.p', os.X_OK) or 7",
        "libc.faccessat(-100, b'out.p', os.X_OK, 0x200) or 7",
    ],
)
def test_a_program_that_becomes_executable_after_its_close_is_waited_for(
    stage: Stage, start: str, second_run: bool
) -> None:
    """As a linker does it, and `echo … > script; chmod +x script`."""
    if second_run:
        executable(stage.root / "out.p", script(OLD)).chmod(0o644)
    maker, taker = stage.puppet("maker"), taker_of(stage)
    taker.send(start)
    stage.await_wait_for("out.p", WaitKind.BORN)
    make(maker, "out.p", script(NEW), mode=0o644)
    stage.await_wait_for("out.p", WaitKind.COMMITTED)
    maker("os.chmod('out.p', 0o755)")
    assert taker.answer() == NEW


def test_a_file_that_is_never_executable_is_refused_when_its_maker_is_over(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.posix_spawn('./out.p', ['p'], {})", WaitKind.BORN)
    make(maker, "out.p", script(NEW), mode=0o644)
    maker.end()
    stage.over("maker")
    with pytest.raises(PermissionError):
        taker.answer()


@runs
@pytest.mark.parametrize(
    "change", ["addchdir_np(actions, b'/') or {0}addchdir_np(actions, root)", "addfchdir_np(actions, fd)"]
)
def test_a_program_is_looked_for_where_its_child_will_be(stage: Stage, change: str, second_run: bool) -> None:
    if second_run:
        executable(stage.root / "out.p", script(OLD))
    maker, taker = stage.puppet("maker"), taker_of(stage)
    spawn = "libc.posix_spawn_file_actions_"
    taker(f"!root, fd = {os.fsencode(stage.root)!r}, os.open('.', 0)\nos.chdir('/')\npid = ctypes.c_int()")
    taker(f"!actions = ctypes.create_string_buffer(256)\n{spawn}init(actions)\n{spawn}{change.format(spawn)}")
    taker.send("ended(libc.posix_spawn(ctypes.byref(pid), b'./out.p', actions, None, words(b'p'), kept) or pid.value)")
    stage.await_wait_for("out.p", WaitKind.BORN)
    make(maker, "out.p", script(NEW))
    assert taker.answer() == NEW
    assert taker(f"{spawn}destroy(actions)") == 0


def test_a_program_that_nobody_makes_is_missing_when_its_makers_are_over(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker.blocks("os.posix_spawn('./out.p', ['p'], {})", WaitKind.BORN)
    stage.over("maker")
    with pytest.raises(FileNotFoundError):
        taker.answer()


def test_a_program_whose_maker_left_the_old_one_is_the_old_one(stage: Stage) -> None:
    executable(stage.root / "out.p", script(OLD))
    taker = taker_of(stage)
    taker.send("subprocess.call(['./out.p'])")
    stage.await_wait_for("out.p", WaitKind.BORN)
    stage.over("maker")
    assert taker.answer() == OLD


def test_a_program_whose_maker_failed_is_not_executed(stage: Stage) -> None:
    executable(stage.root / "out.p", script(OLD))
    taker = stage.puppet("taker")
    taker.blocks("os.posix_spawn('./out.p', ['p'], {})", WaitKind.BORN)
    stage.over("maker", AppState.FAILED, "ended with status 1")
    with pytest.raises(OSError, match="Input/output error"):
        taker.answer()


def test_what_nobody_makes_is_executed_at_once(stage: Stage) -> None:
    executable(stage.root / "own", script(NEW))
    taker = taker_of(stage)
    assert taker("subprocess.call(['./own'])") == NEW
    assert taker("subprocess.call(['own'])") == NEW
    assert taker("subprocess.call(['true'])") == 0
    with pytest.raises(FileNotFoundError):
        taker("subprocess.call(['no-such-program'])")


def test_a_step_executes_its_own_program_at_once(stage: Stage) -> None:
    executable(stage.root / "out.p", script(NEW))
    maker = stage.puppet("maker")
    assert maker("os.waitstatus_to_exitcode(os.system('./out.p'))") == NEW


def test_a_search_ends_before_a_folder_in_which_a_step_will_make_one(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    executable(tmp_path / "first" / "out.p", script(NEW))
    taker = taker_of(stage)
    taker(f"!os.environ['PATH'] = '{tmp_path}/first:' + os.environ['PATH']")
    assert taker("ended(os.posix_spawnp('out.p', ['p'], {}))") == NEW
    assert taker("subprocess.call(['out.p'])") == NEW


@runs
@pytest.mark.parametrize("word", ["", " ", "/usr/bin/env "])
def test_the_interpreter_of_a_script_is_waited_for(stage: Stage, word: str, second_run: bool) -> None:
    if second_run:
        executable(stage.root / "out.i", script(OLD))
    executable(stage.root / "own", f"#!{word}{stage.root}/out.i\n")
    maker, taker = stage.puppet("maker"), taker_of(stage)
    taker.send("subprocess.call(['./own'])")
    stage.await_wait_for("out.i", WaitKind.BORN)
    make(maker, "out.i", script(NEW))
    assert taker.answer() == NEW


def test_a_program_in_a_folder_that_a_step_makes(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), taker_of(stage)
    taker(f"!os.environ['PATH'] = '{stage.root}/made:' + os.environ['PATH']")
    taker.send("subprocess.call(['p'])")
    stage.await_wait_for("made/p", WaitKind.BORN)
    maker("os.mkdir('made')")
    maker(f"!with open('made/p', 'w') as file: file.write({script(NEW)!r})\nos.chmod('made/p', 0o755)")
    maker.end()
    stage.over("maker")
    assert taker.answer() == NEW


# --- libraries --------------------------------------------------------------------------------------------------------


def build(target: Path, text: str, *options: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) here: libraries that steps make are NOT tested")
    source = target.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, str(source), "-o", str(target), *options], check=True)
    return target


def answers(folder: Path, number: int, name: str = "out.so") -> Path:
    folder.mkdir(exist_ok=True)
    return build(folder / name, f"int answer(void) {{ return {number}; }}", "-shared", "-fPIC", f"-Wl,-soname,{name}")


def deliver(maker: Puppet, source: Path, name: str) -> None:
    maker(f"!data = open({str(source)!r}, 'rb').read()\nout = os.open({name!r}, {MAKE}, 0o755)")
    maker("os.write(out, data[:1000])")
    maker.stage.await_wait_for(name, WaitKind.COMMITTED)
    maker("os.write(out, data[1000:]) and os.close(out)")


ASKS = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\\n", dlerror()), 66;
    return ((int (*)(void))dlsym(library, "answer"))();
}
"""


@runs
@pytest.mark.parametrize("way", ["path", "runpath", "rpath", "library_path"])
def test_dlopen_waits_for_the_whole_library(stage: Stage, tmp_path: Path, way: str, second_run: bool) -> None:
    if second_run:
        aged(Path(shutil.copy(answers(tmp_path / "old", OLD), stage.root / "out.so")))
    new = answers(tmp_path / "new", NEW)
    tags = {"runpath": ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"], "rpath": ["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]}
    asks = build(stage.root / "asks", ASKS, "-ldl", *tags.get(way, []))
    environment = {"LD_LIBRARY_PATH": f"/no/such/folder:{stage.root}"} if way == "library_path" else {}
    maker = stage.puppet("maker")
    name = "./out.so" if way == "path" else "out.so"
    process = stage.start("taker", [str(asks), name], env=environment)
    stage.await_wait_for("out.so", WaitKind.BORN)
    deliver(maker, new, "out.so")
    assert process.wait(PATIENCE) == NEW


def test_a_library_whose_maker_failed_is_not_loaded(stage: Stage, tmp_path: Path) -> None:
    aged(Path(shutil.copy(answers(tmp_path / "old", OLD), stage.root / "out.so")))
    asks = build(stage.root / "asks", ASKS, "-ldl")
    process = stage.start("taker", [str(asks), "./out.so"], stderr=subprocess.PIPE, text=True)
    stage.await_wait_for("out.so", WaitKind.BORN)
    stage.over("maker", AppState.FAILED, "ended with status 1")
    told = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 66
    assert "its producer 'maker' ended with status 1" in told and "a library that is not complete" in told


@pytest.mark.one_in(2)
@runs
@pytest.mark.parametrize("way", ["runpath", "rpath", "library_path", "library_of_a_library", "dlopen"])
def test_libraries_that_a_program_is_linked_against_are_waited_for(
    stage: Stage, tmp_path: Path, way: str, second_run: bool
) -> None:
    new = answers(tmp_path / "new", NEW, "out.inner.so")
    link = [f"-L{tmp_path}/new", "-l:out.inner.so"]
    tags = {"rpath": "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "library_path": "-Wl,-rpath,/no/such/folder"}
    tag = tags.get(way, "-Wl,--enable-new-dtags,-rpath,$ORIGIN")
    if way in ("library_of_a_library", "dlopen"):
        outer = "int answer(void); int outer(void) { return answer(); }"
        build(stage.root / "own.so", outer, "-shared", "-fPIC", *link, tag, "-Wl,-soname,own.so")
        link = [f"-L{stage.root}", "-l:own.so", f"-Wl,-rpath-link,{tmp_path}/new"]
    main = "int outer(void); int main(void) { return outer(); }" if way == "library_of_a_library" else ASKS
    if way in ("runpath", "rpath", "library_path"):
        main = "int answer(void); int main(void) { return answer(); }"
    prog = build(stage.root / "prog", main, *(link if way != "dlopen" else ["-ldl"]), tag)
    if second_run:
        aged(Path(shutil.copy(answers(tmp_path / "old", OLD, "out.inner.so"), stage.root / "out.inner.so")))
    maker, taker = stage.puppet("maker"), taker_of(stage)
    if way == "library_path":
        taker(f"!os.environ['LD_LIBRARY_PATH'] = '{stage.root}'")
    taker.send(f"subprocess.call([{str(prog)!r}, './own.so'])")
    stage.await_wait_for("out.inner.so", WaitKind.BORN)
    deliver(maker, new, "out.inner.so")
    assert taker.answer() == NEW


OUTER = "int answer(void); int outer(void) { return answer(); }"
USES_OUTER = "int outer(void); int main(void) { return outer(); }"


@pytest.mark.parametrize("listed", ["{outside}:{root}", "{outside}:", "{outside};."])
def test_a_library_that_one_from_elsewhere_needs_is_waited_for(stage: Stage, tmp_path: Path, listed: str) -> None:
    """The loader looks in the same directories for all of them, and an empty one is where the program stands."""
    new = answers(tmp_path / "new", NEW, "out.inner.so")
    outside = tmp_path / "outside"
    outside.mkdir()
    inner = [f"-L{tmp_path}/new", "-l:out.inner.so"]
    build(outside / "outer.so", OUTER, "-shared", "-fPIC", *inner, "-Wl,-soname,outer.so")
    link = [f"-L{outside}", "-l:outer.so", f"-Wl,-rpath-link,{tmp_path}/new"]
    prog = build(outside / "prog", USES_OUTER, *link)
    maker, taker = stage.puppet("maker"), taker_of(stage)
    taker(f"!os.environ['LD_LIBRARY_PATH'] = '{listed.format(outside=outside, root=stage.root)}'")
    taker.send(f"subprocess.call([{str(prog)!r}])")
    stage.await_wait_for("out.inner.so", WaitKind.BORN)
    deliver(maker, new, "out.inner.so")
    assert taker.answer() == NEW


def test_a_library_that_a_plugin_loads_is_looked_for_where_the_program_says(stage: Stage, tmp_path: Path) -> None:
    """The RPATH of the program counts for all that is loaded into it."""
    new = answers(tmp_path / "new", NEW)
    loads = """
        #include <dlfcn.h>
        int answer(void) {
            void *library = dlopen("out.so", RTLD_NOW);
            return library ? ((int (*)(void))dlsym(library, "answer"))() : 66;
        }
    """
    plugin = build(tmp_path / "plugin.so", loads, "-shared", "-fPIC", "-ldl")
    asks = build(stage.root / "asks", ASKS, "-ldl", "-Wl,--disable-new-dtags,-rpath,$ORIGIN")
    maker = stage.puppet("maker")
    process = stage.start("taker", [str(asks), str(plugin)])
    stage.await_wait_for("out.so", WaitKind.BORN)
    deliver(maker, new, "out.so")
    assert process.wait(PATIENCE) == NEW
