"""A task that raises, or whose code, arguments or results cannot travel: what its caller and its consumers learn."""

from __future__ import annotations

import inspect
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.programs import Tally, empties, run

import penstock
from penstock import INOUT, DependencyFailed, Future, SerializationError, TaskCancelled, TaskFailed, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine


# --- what an exception says ---------------------------------------------------------------------------------------


class Overflow(Exception):
    """A user's exception with attributes of its own."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message, limit)
        self.limit = limit


@task
def divide(a: float, b: float, label: str = "") -> float:
    print("about to divide")
    print("by", b, file=sys.stderr)
    return a / b


@task
def overflow(limit: int) -> None:
    raise Overflow("too much", limit)


class ByKeyword(Exception):
    """Its constructor takes nothing else."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Unmakeable(ByKeyword):
    """Nobody can make one without saying more than its pickle does."""

    def __new__(cls, *, code: int) -> Unmakeable:
        return super().__new__(cls)


class Found(ExceptionGroup[Exception]):
    """A user's group."""


@task
def raise_found() -> None:
    found = Found("found", [ValueError("in it"), ExceptionGroup("inner", [ByKeyword(code=7)])])
    found.place = "here"  # type: ignore[attr-defined]
    raise found


@task
def raise_led(how: str) -> None:
    try:
        try:
            raise ByKeyword(code=7)
        except ByKeyword as error:
            raise KeyError("in between") from error
    except KeyError as error:
        if how == "cause":
            raise LookupError("last") from error
        if how == "context":
            raise LookupError("last")  # noqa: B904
        if how == "attribute":
            last = LookupError("last")
            last.reason = error.__cause__  # type: ignore[attr-defined]
            raise last from None
        raise LookupError("last") from Unmakeable(code=7)


@task
def increase(number: Any) -> int:
    return int(number) + 1


@task(items=INOUT)
def append(items: list[Any], item: Any) -> None:
    items.append(item)


def story_of(error: BaseException) -> str:
    """The text that tells all of a failure."""
    cause = error if isinstance(error, TaskFailed) else error.__cause__
    assert isinstance(cause, TaskFailed)
    return str(cause)


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_exception_has_its_type_its_place_and_its_circumstances(either_mode: Runtime) -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        divide(355.0, 0.0, label="pi").result()
    story = story_of(caught.value)
    line = line_of(divide.__wrapped__, "return a / b")
    assert "divide" in story.splitlines()[0]
    assert "355.0, 0.0, label='pi'" in story.splitlines()[0]
    assert platform.node() in story.splitlines()[0]
    assert "attempt 1" in story.splitlines()[0]
    assert "Traceback (most recent call last)" in story
    assert f'{os.path.basename(__file__)}", line {line}, in divide' in story
    assert "return a / b" in story
    assert "executors" not in story  # a traceback as the user would see it locally


def test_exception_comes_with_the_last_output_of_its_worker(runtime: Runtime) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        divide(1.0, 0.0).result()
    assert "about to divide" in story_of(caught.value)
    assert "by 0.0" in story_of(caught.value)


def test_exception_keeps_its_attributes(either_mode: Runtime) -> None:
    with pytest.raises(Overflow) as caught:
        overflow(7).result()
    assert caught.value.limit == 7


def test_members_of_a_group_arrive_as_they_would_alone(either_mode: Runtime) -> None:
    group = raise_found().exception()
    assert type(group) is Found and group.message == "found"
    assert vars(group)["place"] == "here"
    first, inner = group.exceptions
    assert isinstance(first, ValueError) and isinstance(inner, ExceptionGroup)
    assert isinstance(inner.exceptions[0], ByKeyword) and inner.exceptions[0].code == 7
    assert isinstance(group.__cause__, TaskFailed)


def test_what_led_to_an_exception_comes_after_what_is_said_of_it(either_mode: Runtime) -> None:
    story = raise_led("cause").exception().__cause__  # type: ignore[union-attr]
    assert isinstance(story, TaskFailed) and story.__suppress_context__
    between = story.__cause__
    assert isinstance(between, KeyError) and isinstance(between.__cause__, ByKeyword) and between.__cause__.code == 7
    story = raise_led("context").exception().__cause__  # type: ignore[union-attr]
    assert isinstance(story, TaskFailed) and not story.__suppress_context__
    assert story.__cause__ is None and isinstance(story.__context__, KeyError)
    error = raise_led("attribute").exception()
    assert isinstance(error, LookupError) and isinstance(error.__cause__, TaskFailed)
    assert error.__cause__.__cause__ is None and error.__cause__.__context__ is None
    assert isinstance(vars(error)["reason"], ByKeyword)


def test_what_led_to_an_exception_and_cannot_travel_is_left_out(either_mode: Runtime) -> None:
    error = raise_led("cannot travel").exception()
    assert isinstance(error, LookupError) and isinstance(error.__cause__, TaskFailed)
    assert error.__cause__.__cause__ is None


def test_exception_is_given_by_every_way_to_ask(either_mode: Runtime) -> None:
    future = divide(1.0, 0.0)
    assert isinstance(future.exception(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        wait_on([future])
    with pytest.raises(ZeroDivisionError):
        future.result(timeout=1)
    assert future.done() and not future.cancelled()


def test_a_task_called_when_its_input_is_known_to_have_failed_is_told_of(either_mode: Runtime) -> None:
    ratio = divide(1, 0)
    before = increase(ratio)
    with pytest.raises(ZeroDivisionError):
        ratio.result()
    penstock.barrier()  # what was called before is over with the failure that the program knows of
    with pytest.raises(DependencyFailed):
        before.result()
    after = increase(increase(ratio))
    with pytest.raises(DependencyFailed, match="did not run: task divide"):
        penstock.barrier()
    penstock.barrier()
    with pytest.raises(DependencyFailed):
        after.result()


def test_an_object_is_not_quietly_as_before_a_task_that_could_not_run(either_mode: Runtime) -> None:
    ratio, total = divide(1, 0), [1]
    with pytest.raises(ZeroDivisionError):
        ratio.result()
    append(total, ratio)
    with pytest.raises(DependencyFailed):
        wait_on(total)
    append(total, 2)
    assert wait_on(total) == [1, 2]


def test_exception_nobody_looked_at_is_raised_by_the_barrier_and_once_only(either_mode: Runtime) -> None:
    futures = [divide(1.0, 0.0), overflow(1)]
    with pytest.raises((ZeroDivisionError, Overflow)) as caught:
        penstock.barrier()
    assert any("1 more" in note for note in caught.value.__notes__)
    penstock.barrier()
    del futures


@task
def raise_chain() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError("outer") from error


def test_chained_exception_shows_both_tracebacks(either_mode: Runtime) -> None:
    with pytest.raises(RuntimeError) as caught:
        raise_chain().result()
    story = story_of(caught.value)
    assert "KeyError: 'inner'" in story
    assert "direct cause" in story


@task
def raise_group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), Overflow("two", 2)])


def test_exception_group_arrives_as_one(either_mode: Runtime) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        raise_group().result()
    assert [type(part) for part in caught.value.exceptions] == [ValueError, Overflow]


@task
def raise_long(length: int) -> None:
    raise ValueError("ab" * (length // 2))


def test_message_of_a_million_characters_arrives_whole(either_mode: Runtime) -> None:
    with pytest.raises(ValueError) as caught:
        raise_long(1_000_000).result()
    assert len(str(caught.value)) == 1_000_000
    assert increase(1).result() == 2


@task
def take_anything(*values: Any, **named: Any) -> None:
    raise ValueError("refused")


def test_long_arguments_are_shown_in_short(either_mode: Runtime) -> None:
    with pytest.raises(ValueError) as caught:
        take_anything("x" * 100_000, list(range(100_000)), key={i: i for i in range(10_000)}).result()
    first = story_of(caught.value).splitlines()[0]
    assert "take_anything#1('xxx" in first
    assert len(first) < 1000


class Loud:
    """An object whose picture cannot be taken."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_argument_that_cannot_be_shown_does_not_hide_the_failure(either_mode: Runtime) -> None:
    with pytest.raises(ValueError, match="refused"):
        take_anything(Loud()).result()


@task
def recurse(depth: int) -> int:
    return int(recurse.__wrapped__(depth + 1))


@task
def nest(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def test_endless_recursion_and_endless_nesting_are_ordinary_failures(either_mode: Runtime) -> None:
    with pytest.raises(RecursionError) as caught:
        recurse(0).result()
    assert len(story_of(caught.value)) < 10_000
    with pytest.raises(SerializationError, match="nest"):
        nest(100_000).result()
    with pytest.raises(SerializationError, match="take_anything"):
        take_anything(nest.__wrapped__(100_000))
    assert increase(1).result() == 2


# --- exceptions that cannot travel --------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Pickles, but cannot be built again from what it pickles."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class HoldsLock(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class HoldsSocket(Exception):
    def __init__(self) -> None:
        super().__init__("holds a socket")
        self.socket = socket.socket()


class RefusesToReduce(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


class DiesOnLoading(Exception):
    def __reduce__(self) -> Any:
        return (_die, ())


def _die() -> None:
    raise SystemExit("while loading")


class MuteException(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@task
def raise_one(name: str) -> None:
    made: dict[str, Callable[[], Exception]] = {
        "TwoArguments": lambda: TwoArguments(404, "not found"),
        "HoldsLock": HoldsLock,
        "HoldsSocket": HoldsSocket,
        "RefusesToReduce": lambda: RefusesToReduce("stays here"),
        "DiesOnLoading": lambda: DiesOnLoading("not loaded"),
    }
    raise made[name]()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TwoArguments", "404: not found"),
        ("HoldsLock", "holds a lock"),
        ("HoldsSocket", "holds a socket"),
        ("RefusesToReduce", "stays here"),
        ("DiesOnLoading", "not loaded"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_exception_that_cannot_be_pickled_keeps_its_class_and_its_text(
    either_mode: Runtime, name: str, text: str
) -> None:
    with pytest.raises(globals()[name]) as caught:
        raise_one(name).result()
    assert str(caught.value) == text
    story = story_of(caught.value)
    assert f"{name}: {text}" in story
    assert "raise_one" in story
    assert "raise made[name]()" in story
    assert increase(1).result() == 2


@task
def raise_unknown() -> None:
    class Unknown(Exception):
        def __reduce__(self) -> Any:
            raise RuntimeError("not me")

        def __new__(cls, *args: Any) -> Any:
            if not args:
                raise TypeError("an argument is needed")
            return super().__new__(cls, *args)

    raise Unknown("made in the worker")


def test_exception_that_cannot_even_be_made_anew_is_told_by_its_text(either_mode: Runtime) -> None:
    with pytest.raises(TaskFailed, match="Unknown: made in the worker") as caught:
        raise_unknown().result()
    assert 'raise Unknown("made in the worker")' in str(caught.value)


@task
def raise_mute() -> None:
    raise MuteException


def test_exception_without_words_is_named_by_its_type(either_mode: Runtime) -> None:
    with pytest.raises((TaskFailed, MuteException)) as caught:
        raise_mute().result()
    assert "MuteException" in story_of(caught.value)


def test_exception_class_of_the_main_program_is_caught_there_by_its_class(tmp_path: Path) -> None:
    source = """
class Mine(Exception):
    pass

@task
def fail():
    raise Mine("from main")

try:
    fail().result()
except Mine as error:
    print("caught", error, type(error) is Mine)
"""
    status, output, errors = run(tmp_path, source)
    assert (status, output.strip()) == (0, "caught from main True"), errors


# --- what cannot be pickled ---------------------------------------------------------------------------------------


@task
def consume(first: Any, second: Any = None) -> str:
    return "consumed"


@pytest.mark.parametrize("how", ["positional", "keyword", "nested", "updated"])
def test_argument_that_cannot_be_pickled_is_an_error_at_the_call_which_names_it(either_mode: Runtime, how: str) -> None:
    lock = threading.Lock()
    calls: dict[str, tuple[Callable[[], object], str, str]] = {
        "positional": (lambda: consume(1, lock), "consume", "'second'"),
        "keyword": (lambda: consume(1, second=lock), "consume", "'second'"),
        "nested": (lambda: consume(1, second={"deep": [lock]}), "consume", "'second'"),
        "updated": (lambda: update(lock), "update", "'target'"),
    }
    call, task_name, argument = calls[how]
    with pytest.raises(SerializationError) as caught:
        call()
    assert task_name in str(caught.value)
    assert argument in str(caught.value)
    assert "lock" in str(caught.value)
    assert consume(1).result() == "consumed"


@task(target=INOUT)
def update(target: Any) -> None:
    pass


@task
def make_lock() -> Any:
    return threading.Lock()


@task(returns=2)
def make_two() -> Any:
    return 1, threading.Lock()


def futures_of(call: Any) -> list[Future[Any]]:
    """What a call with several returns gives."""
    assert isinstance(call, list)
    return call


@task(target=INOUT)
def add_lock(target: list[Any]) -> None:
    target.append(threading.Lock())


def test_result_that_cannot_be_pickled_is_an_error_in_the_future_which_names_the_task(either_mode: Runtime) -> None:
    with pytest.raises(SerializationError, match="make_lock") as caught:
        make_lock().result()
    assert "lock" in str(caught.value)
    first, second = futures_of(make_two())
    assert isinstance(first.exception(), SerializationError)
    with pytest.raises(SerializationError, match="make_two"):
        second.result()


def test_updated_argument_that_cannot_be_pickled_is_an_error_which_names_it(either_mode: Runtime) -> None:
    target: list[Any] = [1]
    add_lock(target)
    with pytest.raises(SerializationError, match=r"'target'|argument 0") as caught:
        wait_on(target)
    assert "add_lock" in str(caught.value)


def test_function_that_cannot_be_pickled_is_an_error_at_the_call(either_mode: Runtime) -> None:
    lock = threading.Lock()

    @task
    def locked() -> None:
        with lock:
            pass

    with pytest.raises(SerializationError, match="locked") as caught:
        locked()
    assert "lock" in str(caught.value)
    assert increase(1).result() == 2


class LoadsBadly:
    """Pickles well, and raises in the worker."""

    def __reduce__(self) -> Any:
        return (_refuse, ())


def _refuse() -> None:
    raise OSError("cannot be loaded here")


def test_argument_that_cannot_be_loaded_is_an_error_in_the_future(either_mode: Runtime) -> None:
    with pytest.raises((OSError, SerializationError)) as caught:
        consume(LoadsBadly()).result()
    assert "cannot be loaded here" in str(caught.value)
    assert increase(1).result() == 2


@task
def make_badly_loading() -> LoadsBadly:
    return LoadsBadly()


def test_result_that_cannot_be_loaded_is_an_error_where_it_is_asked_for(either_mode: Runtime) -> None:
    with pytest.raises((OSError, SerializationError), match="cannot be loaded here"):
        make_badly_loading().result()
    with pytest.raises((OSError, SerializationError), match="cannot be loaded here"):
        consume(make_badly_loading()).result()


def test_module_that_workers_cannot_import_is_told_in_the_future(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text(
        "import os, penstock\n"
        "if os.environ.get('MAIN') != str(os.getpid()):\n"
        "    raise ImportError('not in this process')\n"
        "@penstock.task\n"
        "def work():\n"
        "    return 1\n"
    )
    source = """
os.environ["MAIN"] = str(os.getpid())
import only_here
try:
    only_here.work().result()
except Exception as error:
    print(type(error).__name__, "work" in str(error), "not in this process" in str(error))
"""
    status, output, errors = run(tmp_path, source)
    assert (status, output.strip()) == (0, "SerializationError True True"), errors


# --- leaving without raising --------------------------------------------------------------------------------------


@task
def leave(status: Any) -> None:
    sys.exit(status)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("status", [0, 3, "enough"])
def test_sys_exit_in_a_task_fails_that_task_and_ends_nothing_else(either_mode: Runtime, status: Any) -> None:
    with pytest.raises(TaskFailed, match=r"sys\.exit") as caught:
        leave(status).result()
    assert repr(status) in str(caught.value)
    assert increase(1).result() == 2


@task
def interrupt_itself() -> None:
    raise KeyboardInterrupt


def test_keyboard_interrupt_raised_in_a_task_does_not_interrupt_the_program(runtime: Runtime) -> None:
    error = interrupt_itself().exception()
    assert error is not None
    assert "KeyboardInterrupt" in story_of(error)
    assert increase(1).result() == 2


# --- on_failure and consumers -------------------------------------------------------------------------------------


@task
def fail_counted(tally: Tally) -> int:
    tally.mark()
    raise ValueError("root cause")


@task(retries=3)
def fail_thrice(tally: Tally) -> int:
    if tally.mark() <= 3:
        raise ValueError("not yet")
    return tally.count()


@task(on_failure="retry")
def fail_always(tally: Tally) -> int:
    tally.mark()
    raise ValueError("never")


@task(on_failure="ignore")
def fail_ignored() -> int:
    raise ValueError("who cares")


@task(on_failure="ignore", target=INOUT)
def spoil(target: list[int]) -> None:
    target.append(99)
    raise ValueError("half way")


@task(on_failure="cancel_successors")
def fail_cancelling() -> int:
    raise ValueError("root cause")


@task
def join(*parts: Any) -> list[Any]:
    return list(parts)


def test_exception_is_not_retried_unless_asked_for(either_mode: Runtime, tally: Tally) -> None:
    with pytest.raises(ValueError, match="root cause"):
        fail_counted(tally).result()
    assert tally.count() == 1


def test_retries_are_made_until_one_attempt_succeeds(either_mode: Runtime, tally: Tally) -> None:
    assert fail_thrice(tally).result() == 4


def test_on_failure_retry_makes_three_attempts_and_the_last_one_speaks(either_mode: Runtime, tally: Tally) -> None:
    with pytest.raises(ValueError, match="never") as caught:
        fail_always(tally).result()
    assert tally.count() == 3
    assert "attempt 3" in story_of(caught.value)


@pytest.mark.parametrize("retries", [0, 1])
def test_number_of_retries_is_exact(either_mode: Runtime, tally: Tally, retries: int) -> None:
    @task(retries=retries)
    def fail(tally: Tally) -> None:
        tally.mark()
        raise ValueError("again")

    assert isinstance(fail(tally).exception(), ValueError)
    assert tally.count() == retries + 1


def test_on_failure_ignore_gives_none_and_consumers_run(either_mode: Runtime) -> None:
    future = fail_ignored()
    assert join(future, 1).result() == [None, 1]
    assert future.result() is None
    penstock.barrier()


def test_on_failure_ignore_leaves_an_updated_object_as_it_was(either_mode: Runtime) -> None:
    target = [1, 2]
    spoil(target)
    assert join(target).result() == [[1, 2]]
    assert wait_on(target) == [1, 2]


def test_consumers_of_a_failed_task_name_the_root_and_the_path(either_mode: Runtime, tally: Tally) -> None:
    root = fail_counted(tally)
    middle = increase(root)
    last = join(1, [middle])
    with pytest.raises(DependencyFailed) as caught:
        last.result()
    text = str(caught.value)
    assert "fail_counted#1" in text
    assert "increase#2" in text
    assert "join#3" in text
    assert "ValueError: root cause" in text
    assert text.index("join#3") < text.index("fail_counted#1")
    assert 'raise ValueError("root cause")' in text  # the root's traceback
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(middle.exception(), DependencyFailed)
    assert isinstance(root.exception(), ValueError)
    assert tally.count() == 1


def test_consumer_called_after_the_failure_fails_as_well(either_mode: Runtime, tally: Tally) -> None:
    root = fail_counted(tally)
    assert isinstance(root.exception(), ValueError)
    with pytest.raises(DependencyFailed, match="fail_counted#1"):
        increase(root).result()


def test_object_updated_by_a_failed_task_is_as_before_once_that_is_known(either_mode: Runtime) -> None:
    target = [1]

    @task(target=INOUT)
    def fail_update(target: list[int]) -> None:
        raise ValueError("no update")

    fail_update(target)
    later = join(target)
    with pytest.raises(DependencyFailed, match="fail_update"):
        later.result()
    assert wait_on(target) == [1]


def test_on_failure_cancel_successors_cancels_them_and_nothing_else(either_mode: Runtime) -> None:
    root = fail_cancelling()
    middle, last = increase(root), None
    last = increase(middle)
    independent = increase(1)
    assert isinstance(root.exception(), ValueError)
    for future in (middle, last):
        with pytest.raises(TaskCancelled) as caught:
            future.result()
        assert "fail_cancelling#1" in str(caught.value)
        assert future.cancelled()
    assert independent.result() == 2


# --- many, and side by side ---------------------------------------------------------------------------------------


@task
def fail_number(number: int) -> None:
    raise ValueError(f"number {number}")


def test_a_thousand_failing_tasks_leave_nothing(runtime: Runtime) -> None:
    for future in [fail_number(number) for number in range(1000)]:
        assert isinstance(future.exception(), ValueError)
    del future
    state = runtime.driver.engine.state
    assert increase(1).result() == 2  # what finalisers noted is passed on with the next event
    penstock.barrier()
    assert not state.tasks
    assert len(state.versions) <= 1
    assert not runtime.driver.waiters
    assert not runtime.driver.unobserved
    assert empties(runtime.segments.memory_dir)


def test_map_tells_which_elements_failed_and_keeps_the_others(either_mode: Runtime) -> None:
    @task
    def invert(number: int) -> float:
        return 1 / number

    mapped = invert.map([1, 0, 2, 0, 4])
    assert [mapped[i].result() for i in (0, 2, 4)] == [1, 0.5, 0.25]
    for i in (1, 3):
        with pytest.raises(ZeroDivisionError) as caught:
            mapped[i].result()
        assert "return 1 / number" in story_of(caught.value)
        assert "invert" in story_of(caught.value)


def test_sys_exit_in_one_element_of_a_map_spares_the_others(either_mode: Runtime) -> None:
    @task
    def exit_at_two(number: int) -> int:
        if number == 2:
            sys.exit(1)
        return number

    mapped = exit_at_two.map(range(5))
    error = mapped[2].exception()
    assert error is not None and "sys.exit" in str(error)
    assert [mapped[i].result() for i in (0, 1, 3, 4)] == [0, 1, 3, 4]


def test_callback_that_raises_is_reported_and_harms_nobody(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    def raises(future: Future[Any]) -> None:
        raise RuntimeError("bad callback")

    def notes(future: Future[Any]) -> None:
        called.set()

    future = divide(1.0, 0.0)
    future.add_done_callback(raises)
    future.add_done_callback(notes)
    assert isinstance(future.exception(), ZeroDivisionError)
    assert called.wait(60)
    assert "bad callback" in caplog.text
    assert increase(1).result() == 2


def test_callback_may_submit_and_wait(runtime: Runtime) -> None:
    heard: list[object] = []
    called = threading.Event()

    def submit_and_wait(future: Future[Any]) -> None:
        try:
            heard.append(increase(future.result()).result(timeout=60))
        except Exception as error:
            heard.append(error)
        called.set()

    future = increase(1)
    future.add_done_callback(submit_and_wait)
    assert future.result() == 2
    assert called.wait(60)
    # Waiting where results are delivered from cannot work: then it must say so at once, not wait for ever.
    assert heard == [3] or isinstance(heard[0], penstock.PenstockError)
    assert increase(1).result() == 2


def test_window_is_not_blocked_by_failures(tally: Tally) -> None:
    with pytest.raises(ValueError, match="root cause"), penstock.Runtime(cpus=2, window=5):
        for _ in range(100):
            increase(fail_counted(tally))
    assert tally.count() == 100


def test_failures_of_threads_of_the_program_do_not_mix(runtime: Runtime) -> None:
    wrong: list[object] = []

    def submit(number: int) -> None:
        for _ in range(20):
            error = fail_number(number).exception()
            if str(error) != f"number {number}":
                wrong.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
