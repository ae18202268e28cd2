"""The programs that write, each as a person would call it."""

from __future__ import annotations

from tests.streaming.matrix.kinds import (
    CLOSE_UPDATE,
    ONCE,
    REWRITTEN,
    TERMINATION_NO_UPDATE,
    TERMINATION_UPDATE,
    Program,
    Rule,
    by_name,
)

__all__ = ["PRODUCERS"]

PRODUCERS = by_name(
    Program("drip", "{bin}/drip {out}", ("gcc",)),
    Program("c-stdio", "{bin}/write_stdio {out}", ("gcc",)),
    Program("c-raw", "{bin}/write_raw {out}", ("gcc",)),
    Program("c-mapped", "{bin}/write_mapped {out}", ("gcc",)),
    Program("c-sparse", "{bin}/write_sparse {out}", ("gcc",)),
    Program("c-renamed", "{bin}/write_renamed {out}", ("gcc",)),
    Program("c++", "{bin}/write_stream {out}", ("g++",)),
    Program("fortran", "{bin}/write_fortran {out}", ("gfortran",)),
    Program("fortran-binary", "{bin}/write_binary {out}", ("gfortran",), REWRITTEN),
    Program("python-text", "{python} {here}/write.py {out} text"),
    Program("python-binary", "{python} {here}/write.py {out} binary"),
    Program("python-path", "{python} {here}/write.py {out} path", rules=ONCE),
    Program("python-copy", "{python} {here}/write.py {out} copy {seed}"),
    Program("python-numpy", "{python} {here}/write.py {out} numpy", ("python:numpy",), ONCE, files=("data.npy",)),
    # Three closes: nothing but the count, or the end of the program, is the end of the file.
    Program(
        "python-append",
        "{python} {here}/write.py {out} append",
        rules=(Rule("on_close:3", "update"), Rule("on_close:3", "no_update"), TERMINATION_NO_UPDATE),
    ),
    Program("bash-redirection", "for i in {{1..300}}; do echo $i of many; done > {out}"),
    Program("bash-exec", "exec > {out}; printf '%s\\n' one two; echo three; {bin}/drip - 100 10", ("gcc",)),
    Program("bash-append", "for i in {{1..40}}; do echo $i again >> {out}; done", rules=(TERMINATION_NO_UPDATE,)),
    Program("bash-heredoc", "cat > {out} <<END\n$(seq 200)\nEND"),
    Program("pipe", "seq 2000 | tr 1 x | rev > {out}", ("rev",)),
    Program("cat", "cat {seed} {seed} > {out}"),
    Program("cp", "cp {seed} {out}"),
    Program("cp-and-mv", "cp {seed} {out}.new && mv {out}.new {out}"),
    Program("dd", "dd if={seed} of={out} bs=1000 status=none"),
    Program("dd-sparse", "dd if={seed} of={out} bs=1k seek=100 count=3 status=none"),
    Program("tee", "tee {out} < {seed} > /dev/null"),
    Program("split", "split -n l/3 {seed} {out}.", files=("data.aa", "data.ab", "data.ac")),
    Program("sort", "sort -r {seed} -o {out}"),
    Program("wc", "wc {seed} > {out}"),
    Program("head", "head -n 700 {seed} > {out}"),
    Program("tail", "tail -n 700 {seed} > {out}"),
    Program("install", "install -m 600 {seed} {out}"),
    Program("truncate", "truncate -s 100k {out}", rules=REWRITTEN),
    Program("gzip", "gzip -nc {seed} > {out}"),
    Program("gzip-in-place", "cp {seed} {out} && gzip -n {out}", files=("data.gz",)),
    Program("zstd", "zstd -q {seed} -o {out}", ("zstd",)),
    Program("tar", "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf {out} {seed}", ("tar",)),
    # It writes the archive in order, then the times of what it has unpacked are set after their close.
    Program("untar", "tar -xf {archive} -C {folder}", ("tar",), files=("data.one", "data.two")),
    Program("awk", """awk '{{ print NR, $0 > "{out}" }}' {seed}""", ("awk",)),
    Program("gawk", """gawk '{{ print NR, $0 > "{out}" }}' {seed}""", ("gawk",), ONCE),
    Program("sed", "sed -n 'w {out}' {seed}"),
    Program("sed-in-place", "cp {seed} {out} && sed -i s/line/LINE/ {out}", rules=(TERMINATION_UPDATE,)),
    Program("grep", "grep -n 7 {seed} > {out}"),
    Program("perl", "perl {here}/write.pl {out}", ("perl",)),
    Program(
        "sqlite3",
        "sqlite3 {out} 'create table t (a, b);"
        " with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)"
        " insert into t select i, i * i from n; create index i on t (b);'",
        ("sqlite3",),
        REWRITTEN,
    ),
    Program("sqlite3-text", "sqlite3 -cmd '.output {out}' :memory: 'select 1, 2; select 3'", ("sqlite3",), ONCE),
    Program("java", "java -Xshare:auto -XX:TieredStopAtLevel=1 -cp {bin} Write {out} old", ("java", "javac"), ONCE),
    Program(
        "java-channel", "java -XX:TieredStopAtLevel=1 -cp {bin} Write {out} new", ("java", "javac"), (CLOSE_UPDATE,)
    ),
    Program("node", "node {here}/write.js {out} stream", ("node",), ONCE),
    Program("node-whole", "node {here}/write.js {out} whole", ("node",), (CLOSE_UPDATE,)),
    Program(
        "mpi", "{mpiexec} -n 2 {python} {here}/write_mpi.py {out}", ("python:mpi4py", "mpiexec"), (TERMINATION_UPDATE,)
    ),
    Program("h5py", "{python} {here}/write_science.py {out} hdf5", ("python:h5py",), REWRITTEN),
    Program("netcdf4", "{python} {here}/write_science.py {out} netcdf", ("python:netCDF4",), REWRITTEN),
    Program("netcdf3", "{python} {here}/write_science.py {out} classic", ("python:netCDF4",), (CLOSE_UPDATE,)),
    # Without the library: supervised, where the machine allows it.
    Program("busybox", "busybox cp {seed} {out}", ("busybox",)),
    Program("busybox-dd", "busybox dd if={seed} of={out} bs=1000 2> /dev/null", ("busybox",)),
    Program("busybox-pipe", "busybox cat {seed} | busybox tr a-z A-Z | busybox sort > {out}", ("busybox",)),
    Program("busybox-mv", "busybox cp {seed} {out}.new && busybox mv {out}.new {out}", ("busybox",)),
    Program(
        "busybox-sh",
        "busybox sh -c 'while read -r a b c; do echo $c; done < {seed} > {out}; wc -l < {seed} | cat >> {out}'",
        ("busybox",),
        (TERMINATION_NO_UPDATE,),
    ),
    Program("busybox-untar", "busybox tar -xf {archive} -C {folder}", ("busybox",), files=("data.one", "data.two")),
    Program("busybox-sed", "cp {seed} {out}; busybox sed -i s/1/one/ {out}", ("busybox",), (TERMINATION_UPDATE,)),
    Program("go-rclone", "rclone --config= copyto {seed} {out}", ("rclone",)),
    Program("go-rclone-cat", "rclone --config= cat {seed} > {out}", ("rclone",), ONCE),
    Program(
        "rust-musl",
        "{musl}/ruff check --isolated --no-cache --output-format concise --output-file {out} {seed} || [ $? = 1 ]",
        ("musl:ruff",),
    ),
    # What `source` in a shell can read.
    Program("script", "for i in {{1..50}}; do echo 'total=$((total + '$i'))'; done > {out}", rules=ONCE),
)
