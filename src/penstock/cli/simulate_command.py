"""A command ``penstock simulate`` as it was written: checked at once, then a request, or words for others like it.

options ──▶ Command ─ check ─┬▶ request(…) ──▶ one simulation
                             └▶ words() ─────▶ the combinations of a sweep, each a process
"""

from __future__ import annotations

from msgspec import Struct

from penstock.cli.simulate_input import Kind, Request, kind_of, split_loss
from penstock.cli.simulate_settings import read_settings
from penstock.errors import ConfigError
from penstock.runtime.simulated_durations import parse_duration, parse_given
from penstock.sim.workloads import Seconds

__all__ = ["Command"]


class Command(Struct, frozen=True, kw_only=True):
    """What was asked for, besides what is to be written."""

    given: str
    args: list[str]
    module: bool
    #: by name, as written; those of layers with ``layer.`` before it
    settings: dict[str, str]
    durations: list[str]
    default_duration: str | None
    main_time: bool
    lose: list[str]
    files_under: str

    def check(self) -> None:
        """Refuse what can be seen to be wrong before anything runs."""
        kind = kind_of(self.given, as_module=self.module)
        read_settings(self.settings)
        self._durations()
        self._default()
        for text in self.lose:
            split_loss(text, "node-1")
        self._check_kind(kind)

    def _check_kind(self, kind: Kind) -> None:
        if self.files_under and kind != "workflow":
            raise ConfigError(
                f"--files-under {self.files_under} is for workflows; {self.given} is a {_KINDS[kind]}, which names its "
                f"files itself"
            )
        if self.main_time and kind != "program":
            raise ConfigError(f"--main-time is for programs; {self.given} is a {_KINDS[kind]}, and none is run")
        if self.default_duration is not None and kind == "recorded":
            raise ConfigError(
                f"--default-duration {self.default_duration}: all tasks of a recorded run have a duration; "
                f"--duration TASK=TIME gives them another one"
            )

    def request(self, log: str | None, *, quiet: bool) -> Request:
        """One simulation."""
        return Request(
            input=self.given,
            args=self.args,
            as_module=self.module,
            settings=read_settings(self.settings),
            durations=self._durations(),
            default_duration=self._default(),
            main_time=self.main_time,
            lose=self.lose,
            files_under=self.files_under,
            log=log,
            progress=not quiet,
        )

    def words(self) -> list[str]:
        """The command anew, without the arguments of a program."""
        words = [self.given, *(["-m"] if self.module else [])]
        for name, value in self.settings.items():
            if name.startswith("layer."):
                words += ["--layer", f"{name.removeprefix('layer.')}={value}"]
            else:
                words += [f"--{name.replace('_', '-')}", value]
        for flag, texts in (("--duration", self.durations), ("--lose", self.lose)):
            words += [word for text in texts for word in (flag, text)]
        words += ["--default-duration", self.default_duration] if self.default_duration is not None else []
        words += ["--main-time"] if self.main_time else []
        return words + (["--files-under", self.files_under] if self.files_under else [])

    def _durations(self) -> dict[str, Seconds]:
        found = {}
        for text in self.durations:
            try:
                name, seconds = parse_given(text)
            except ConfigError as error:
                raise ConfigError(f"--duration {text}: {error}") from None
            found[name] = seconds
        return found

    def _default(self) -> Seconds | None:
        if self.default_duration is None:
            return None
        try:
            return parse_duration(self.default_duration)
        except ConfigError as error:
            raise ConfigError(f"--default-duration {self.default_duration}: {error}") from None


_KINDS: dict[Kind, str] = {"program": "program", "recorded": "recorded run", "workflow": "workflow"}
