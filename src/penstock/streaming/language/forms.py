"""The two forms of the coordination file: which key says what in each.

They have the same meaning and one reader (``sections``); a ``Form`` is what differs. A key of the other form
is a mistake, and the message says what it is called here.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["JSON", "TOML", "Form", "keys_of_the_other"]


class Form(Struct, frozen=True):
    """The keys of one form."""

    name: str
    #: what its arrays of programs, and one of them, are called
    steps: str
    step: str
    input: str
    output: str
    rules: str
    #: of a rule
    files: str
    directories: str
    commit: str
    fire: str
    after: str
    homes: str
    #: spellings of ``homes`` that are accepted with a warning
    homes_too: tuple[str, ...]
    #: of an entry of homes.manual
    manual_files: str
    manual_step: str
    #: what configurations of CAPIO have and the language does not name: no steps at all, one name without a list
    #: around it, older words
    lenient: bool
    #: keys that only this form has
    top_extra: tuple[str, ...] = ()
    step_extra: tuple[str, ...] = ()
    #: a rule for files implies one for their directories
    implies_directories: bool = False

    @property
    def top_keys(self) -> tuple[str, ...]:
        return ("name", self.steps, "aliases", "permanent", "exclude", self.homes, *self.top_extra)

    @property
    def step_keys(self) -> tuple[str, ...]:
        return ("name", self.input, self.output, self.rules, *self.step_extra)

    @property
    def rule_keys(self) -> tuple[str, ...]:
        return (self.files, self.directories, self.commit, self.fire, self.after)


JSON = Form(
    name="json",
    steps="IO_Graph",
    step="application",
    input="input_stream",
    output="output_stream",
    rules="streaming",
    files="name",
    directories="dirname",
    commit="committed",
    fire="mode",
    after="files_deps",
    homes="home_node_policy",
    homes_too=("home-node-policy", "home_nodes"),
    manual_files="name",
    manual_step="app_node",
    lenient=True,
    top_extra=("$schema",),
)

TOML = Form(
    name="toml",
    steps="step",
    step="step",
    input="input",
    output="output",
    rules="stream",
    files="files",
    directories="directories",
    commit="commit",
    fire="fire",
    after="after",
    homes="homes",
    homes_too=(),
    manual_files="files",
    manual_step="step",
    lenient=False,
    top_extra=("temporary", "directory", "limit"),
    step_extra=("command", "cwd", "env", "sizes", "instances"),
    implies_directories=True,
)

_ALIKE = ("steps", "input", "output", "rules", "directories", "commit", "fire", "after", "homes", "manual_step")


def keys_of_the_other(form: Form) -> dict[str, str]:
    """What keys of the other form are called in this one."""
    other = JSON if form is TOML else TOML
    called = {getattr(other, field): getattr(form, field) for field in _ALIKE}
    return called | {"dirs": form.directories, "inputs": form.input, "outputs": form.output}
