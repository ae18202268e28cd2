"""``@task`` in each of its forms: what it decorates, what it returns, how arguments reach the function."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock import FILE_IN, FILE_OUT, IN, INOUT, OUT, CallError, Future, ReturnsMismatch, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


# --- with and without parentheses ---------------------------------------------------------------------------------


@task
def bare(a: int, b: int = 2) -> int:
    """Adds."""
    return a + b


@task()
def parentheses(a: int) -> int:
    return a + 1


def test_a_bare_decorator_makes_a_task() -> None:
    future = bare(1)
    assert isinstance(future, Future)
    assert future.result() == 3


def test_empty_parentheses_make_a_task() -> None:
    assert parentheses(1).result() == 2


def test_a_task_called_as_a_function_of_a_function() -> None:
    double = task(lambda x: 2 * x)
    assert double(4).result() == 8


# --- returns ------------------------------------------------------------------------------------------------------


@task(returns=1)
def one(a: Any) -> Any:
    return a


@task(returns=2)
def two(a: Any, b: Any) -> Any:
    return a, b


@task(returns=3)
def three() -> Any:
    return [1, 2, 3]


@task(returns=int)
def by_type() -> int:
    return 7


@task(returns=list[int])
def by_generic() -> list[int]:
    return [7]


@task(returns=True)
def by_truth() -> int:
    return 8


@task(returns=(int, str))
def by_types() -> tuple[int, str]:
    return 9, "nine"


@task(returns=0)
def nothing(where: str) -> None:
    Path(where).touch()


@task(returns=1)
def a_pair_as_one() -> tuple[int, int]:
    return 1, 2


@task
def unspecified_pair() -> tuple[int, int]:
    return 1, 2


@task
def unspecified_nothing() -> None:
    return None


def test_returns_one_gives_one_future() -> None:
    future = one(5)
    assert isinstance(future, Future)
    assert future.result() == 5


def test_returns_n_gives_n_futures_that_can_be_unpacked() -> None:
    first, second = two("a", "b")
    assert isinstance(first, Future) and isinstance(second, Future)
    assert (first.result(), second.result()) == ("a", "b")


def test_returns_n_gives_exactly_n() -> None:
    futures = three()
    assert len(futures) == 3
    assert [future.result() for future in futures] == [1, 2, 3]


def test_each_of_n_futures_is_a_dependency_of_its_own() -> None:
    first, second = two(10, 20)
    assert wait_on(bare(first, second)) == 30


def test_returns_by_type_generic_truth_and_types() -> None:
    assert by_type().result() == 7
    assert by_generic().result() == [7]
    assert by_truth().result() == 8
    number, word = by_types()
    assert (number.result(), word.result()) == (9, "nine")


def test_returns_one_keeps_a_tuple_whole() -> None:
    assert a_pair_as_one().result() == (1, 2)


def test_unspecified_returns_is_one_future_of_whatever_comes() -> None:
    assert unspecified_pair().result() == (1, 2)
    assert unspecified_nothing().result() is None


def test_returns_zero_still_runs(tmp_path: Path) -> None:
    given = nothing(str(tmp_path / "made"))
    assert wait_on(given) is None
    import penstock

    penstock.barrier()
    assert (tmp_path / "made").exists()


@task(returns=2)
def one_too_many() -> tuple[int, int, int]:
    return 1, 2, 3


@task(returns=2)
def none_of_two() -> None:
    return None


@task(returns=2)
def a_single_number_for_two() -> int:
    return 5


@pytest.mark.parametrize(
    ("call", "name", "came"), [(one_too_many, "one_too_many", "3"), (none_of_two, "none_of_two", "")]
)
def test_another_number_of_values_than_declared_names_the_task_and_the_number(call: Any, name: str, came: str) -> None:
    first, second = call()
    with pytest.raises(ReturnsMismatch) as caught:
        first.result()
    message = str(caught.value)
    assert name in message
    assert "2" in message and came in message
    with pytest.raises(ReturnsMismatch):
        second.result()


def test_one_value_where_two_are_declared_is_an_error() -> None:
    futures = a_single_number_for_two()
    for future in futures:
        with pytest.raises(ReturnsMismatch, match="a_single_number_for_two"):
            future.result()


# --- arguments ----------------------------------------------------------------------------------------------------


@task
def signature(a: Any, /, b: Any, c: Any = "c", *rest: Any, d: Any, e: Any = "e", **more: Any) -> Any:
    return a, b, c, rest, d, e, more


def test_every_kind_of_parameter_arrives_as_in_a_plain_call() -> None:
    plain = signature.__wrapped__
    for args, kwargs in [
        ((1, 2), {"d": 4}),
        ((1, 2, 3, 4, 5), {"d": 4, "e": 6, "x": 7}),
        ((1,), {"b": 2, "d": 3, "c": 9}),
    ]:
        assert signature(*args, **kwargs).result() == plain(*args, **kwargs)


def test_futures_reach_varargs_and_keywords() -> None:
    found = signature(one(1), one(2), one(3), one(4), d=one(5), x=one(6)).result()
    assert found == (1, 2, 3, (4,), 5, "e", {"x": 6})


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2), {}), ((1, 2), {"d": 1, "a": 3, "b": 2})])
def test_a_call_that_does_not_fit_the_signature_is_an_error_at_the_call(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match="signature"):
        signature(*args, **kwargs)


@task(rest=INOUT)
def append_to_each(value: int, *rest: list[int]) -> None:
    for part in rest:
        part.append(value)


@task(named=INOUT)
def append_to_named(value: int, **named: list[int]) -> None:
    for part in named.values():
        part.append(value)


def test_a_direction_on_varargs_holds_for_each_of_them() -> None:
    a, b = [1], [2]
    append_to_each(9, a, b)
    append_to_each(8, b)
    assert wait_on(a, b) == [[1, 9], [2, 9, 8]]


def test_a_direction_on_keywords_holds_for_each_of_them() -> None:
    a, b = [1], [2]
    append_to_named(9, x=a, y=b)
    assert wait_on(a, b) == [[1, 9], [2, 9]]


@task(bag=INOUT)
def add_default(value: int, *, bag: list[int]) -> None:
    bag.append(value)


def test_a_direction_on_a_keyword_only_parameter() -> None:
    bag: list[int] = []
    add_default(1, bag=bag)
    assert wait_on(bag) == [1]


@task(a=IN, b=OUT)
def fill(a: int, b: list[int]) -> None:
    b[:] = [a] * 3


def test_out_replaces_the_content() -> None:
    b = [99]
    fill(5, b)
    assert wait_on(b) == [5, 5, 5]


@task(total=INOUT)
def increment(total: Any) -> None:
    total += 1


def test_inout_of_something_that_can_never_change_is_an_error_that_names_it() -> None:
    with pytest.raises(CallError, match="total"):
        increment(5)


# --- methods ------------------------------------------------------------------------------------------------------


class Account:
    kind = "plain"

    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    @task
    def deposit(self, amount: int) -> None:
        """Puts money in."""
        self.balance += amount

    @task(target_direction=IN, returns=1)
    def read(self) -> int:
        return self.balance

    @task(target_direction=IN)
    def spoil(self) -> None:
        self.balance = -1

    @task(returns=1, other=INOUT)
    def transfer(self, other: Account, amount: int) -> int:
        self.balance -= amount
        other.balance += amount
        return amount

    @classmethod
    @task(returns=1)
    def class_outside(cls, amount: int) -> str:
        return f"{cls.__name__} {cls.kind} {amount}"

    @task(returns=1)
    @classmethod
    def class_inside(cls, amount: int) -> str:
        return f"{cls.__name__} {cls.kind} {amount}"

    @staticmethod
    @task(returns=1)
    def static_outside(amount: int) -> int:
        return 10 * amount

    @task(returns=1)
    @staticmethod
    def static_inside(amount: int) -> int:
        return 10 * amount


class Savings(Account):
    kind = "savings"


def test_self_is_inout() -> None:
    account = Account(1)
    account.deposit(10)
    account.deposit(100)
    assert wait_on(account) is account
    assert account.balance == 111


def test_self_can_be_read_only() -> None:
    account = Account(5)
    assert account.read().result() == 5
    wait_on(account.spoil())
    assert wait_on(account).balance == 5


def test_a_reader_between_writers_sees_its_own_version() -> None:
    account = Account()
    seen = []
    for amount in (1, 2, 3):
        account.deposit(amount)
        seen.append(account.read())
    assert wait_on(seen) == [1, 3, 6]


def test_a_method_that_updates_two_objects_and_returns() -> None:
    mine, yours = Account(10), Account(0)
    assert mine.transfer(yours, 4).result() == 4
    wait_on(mine, yours)
    assert (mine.balance, yours.balance) == (6, 4)


def test_a_method_called_through_the_class() -> None:
    account = Account(1)
    Account.deposit(account, 2)
    assert wait_on(account).balance == 3


@pytest.mark.parametrize("name", ["class_outside", "class_inside"])
@pytest.mark.parametrize("owner", [Account, Savings, Savings()])
def test_class_methods_in_both_orders_of_decoration(name: str, owner: Any) -> None:
    expected = "Account plain 3" if owner is Account else "Savings savings 3"
    assert getattr(owner, name)(3).result() == expected


@pytest.mark.parametrize("name", ["static_outside", "static_inside"])
@pytest.mark.parametrize("owner", [Account, Savings, Savings()])
def test_static_methods_in_both_orders_of_decoration(name: str, owner: Any) -> None:
    assert getattr(owner, name)(3).result() == 30


# --- what a decorated function keeps ------------------------------------------------------------------------------


def test_name_docstring_signature_and_function_are_kept() -> None:
    assert bare.__name__ == "bare"
    assert bare.__doc__ == "Adds."
    assert bare.__module__ == __name__
    assert inspect.signature(bare) == inspect.signature(bare.__wrapped__)
    assert bare.__wrapped__(1, 1) == 2
    assert "bare" in repr(bare)


def test_methods_keep_name_and_docstring() -> None:
    assert Account.deposit.__doc__ == "Puts money in."
    assert Account(0).deposit.__name__ == "deposit"
    assert list(inspect.signature(Account(0).deposit).parameters) == ["amount"]


def test_a_task_of_a_module_pickles_by_reference() -> None:
    assert pickle.loads(pickle.dumps(bare)) is bare


def test_a_local_task_pickles_by_value() -> None:
    offset = 5

    @task(returns=1)
    def shifted(a: int) -> int:
        """Shifts."""
        return a + offset

    copy = cloudpickle.loads(cloudpickle.dumps(shifted))
    assert copy(1).result() == 6
    assert (copy.__name__, copy.__doc__) == ("shifted", "Shifts.")


def test_a_task_can_be_an_argument_of_a_task() -> None:
    @task(returns=1)
    def apply(function: Any, value: int) -> int:
        return function(value).result()  # type: ignore[no-any-return]

    assert apply(bare, 5).result() == 7


def test_a_closure_sees_what_it_closed_over() -> None:
    factors = [2, 3]

    @task(returns=1)
    def scale(value: int) -> list[int]:
        return [value * factor for factor in factors]

    assert scale(5).result() == [10, 15]


@task(source=FILE_IN, target=FILE_OUT, returns=1)
def copy_file(source: str, target: str) -> int:
    return Path(target).write_bytes(Path(source).read_bytes())


def test_files_and_values_in_one_task(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    written = copy_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert written.result() == 3
    assert (tmp_path / "b").read_text() == "abc"
