"""What mpi4py's names mean in the body of an MPI task: the same as in a program that ``mpiexec`` starts."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.mpi_here import needs_mpi

import penstock
from penstock import mpi, task, wait_on
from penstock.executors.mpi_runner import find_runner

pytestmark = needs_mpi


@pytest.fixture(scope="module")
def runtime() -> Iterator[penstock.Runtime]:
    with penstock.Runtime(cpus=2) as runtime:
        yield runtime


def what_a_program_sees() -> dict[str, Any]:
    """What the constants are and do, as far as that is the same in every run."""
    from mpi4py import MPI

    return {
        "own class": own_class(),
        "initialised": (MPI.Init.__doc__, MPI.Init_thread.__doc__),
        "COMM_WORLD": facts(MPI.COMM_WORLD),
        "COMM_SELF": facts(MPI.COMM_SELF),
    }


def facts(comm: Any) -> dict[str, Any]:
    from mpi4py import MPI

    copies = [copy.copy(comm), copy.deepcopy(comm), *(pickle.loads(pickle.dumps(comm, n)) for n in range(6))]
    others = [MPI.Intracomm(comm), MPI.Intracomm.fromhandle(comm.handle), MPI.Comm.fromhandle(comm.handle)]
    duplicate, let_go = comm.Dup(), MPI.Intracomm(comm)
    for one in (comm, let_go):
        one.free()
    seen = {
        "copies": [one is comm for one in copies],
        "sent to itself": MPI.COMM_SELF.sendrecv(comm, 0, source=0) is comm,
        "equal": [(one == comm, one is comm) for one in others],
        "pickled": [(type(pickle.loads(pickle.dumps(one))) is MPI.Intracomm, one == comm) for one in others],
        "not pickled": error_of(lambda: pickle.dumps(duplicate)),
        "instances": [(isinstance(one, MPI.Intracomm), isinstance(one, MPI.Comm)) for one in [comm, *others]],
        "types": [type(one) is MPI.Intracomm for one in (comm, others[0], others[1], duplicate)],
        "class": (repr(type(comm)), type(comm).__doc__, pickle.loads(pickle.dumps(type(comm))) is MPI.Intracomm),
        "other classes": [issubclass(kind, MPI.Intracomm) for kind in (MPI.Cartcomm, MPI.Intercomm, MPI.Comm, int)],
        "let go": (bool(let_go), bool(comm), let_go == MPI.COMM_NULL),
        "Free": (error_of(comm.Free), bool(comm), comm.allreduce(1)),
        "handle": (MPI._handleof(comm) == comm.handle, MPI._sizeof(comm) == MPI._sizeof(MPI.Comm)),
        "name": (comm.Get_name(), comm.name),
        "compared": [MPI.Comm.Compare(comm, one) for one in (others[0], duplicate, MPI.COMM_WORLD, MPI.COMM_SELF)],
        "null": (comm == MPI.COMM_NULL, isinstance(MPI.COMM_NULL, MPI.Intracomm)),
        "handlers": handlers(comm),
    }
    duplicate.Free()
    return seen | {"freed": (bool(duplicate), bool(comm), comm.allreduce(1))}


def error_of(call: Any) -> Any:
    from mpi4py import MPI

    with pytest.raises((MPI.Exception, ValueError)) as error:
        call()
    return error.value.Get_error_class() if isinstance(error.value, MPI.Exception) else str(error.value)


def handlers(comm: Any) -> list[Any]:
    from mpi4py import MPI

    every = (MPI.ERRORS_ARE_FATAL, MPI.ERRORS_ABORT, MPI.ERRORS_RETURN)
    called: list[tuple[bool, int]] = []
    own = MPI.Comm.Create_errhandler(lambda comm, error: called.append((comm == MPI.COMM_NULL, error)))
    seen: list[Any] = [comm.Get_errhandler() == one for one in every]
    for handler in (*every, own):
        comm.Set_errhandler(handler)
        seen += [comm.Get_errhandler() == other for other in (*every, own)]
    comm.Call_errhandler(MPI.ERR_OTHER)
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    own.Free()
    return [*seen, called]


def own_class() -> list[bool]:
    from mpi4py import MPI

    class Own(MPI.Intracomm):
        pass

    own = Own(MPI.COMM_SELF)
    duplicate, copied = own.Dup(), copy.copy(own)
    seen = [type(duplicate) is Own, isinstance(own, Own), isinstance(MPI.COMM_SELF, Own), issubclass(Own, Own)]
    seen += [type(copied) is Own, copied == MPI.COMM_SELF]
    duplicate.Free()
    return seen


@mpi(processes=2)
@task(returns=list)
def what_a_task_sees() -> Any:
    return what_a_program_sees()


_PROGRAM = """
from mpi4py import MPI
from tests.behaviour.test_mpi_names import what_a_program_sees

seen = MPI.COMM_WORLD.gather(what_a_program_sees())
if seen:
    print(seen)
"""


def test_constants_are_as_in_a_program_without_penstock(runtime: penstock.Runtime) -> None:
    runner = find_runner("mpiexec")
    assert runner is not None
    command = [runner, "-n", "2", sys.executable, "-c", _PROGRAM]
    plain = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert wait_on(what_a_task_sees()) == ast.literal_eval(plain.stdout)


def test_a_world_is_usable_after_a_task_that_tried_to_free_it(runtime: penstock.Runtime) -> None:
    assert wait_on(what_a_task_sees()) == wait_on(what_a_task_sees())


@mpi(processes=2)
@task(returns=list)
def makes_all_error_handlers() -> Any:
    from mpi4py import MPI

    mpi.discard_world()
    with pytest.raises(RuntimeError, match="too many"):
        while True:
            MPI.Comm.Create_errhandler(lambda comm, error: None)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    return MPI.COMM_WORLD.Get_errhandler() == MPI.ERRORS_ARE_FATAL


def test_a_task_may_use_up_the_error_handlers(runtime: penstock.Runtime) -> None:
    assert wait_on(makes_all_error_handlers()) == [True, True]
