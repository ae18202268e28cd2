"""``penstock recover``: bring home what killed runs left on storage layers, and tell what was done."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.runtime.config import Config

__all__ = ["recover"]


def recover(
    directory: Annotated[
        str, typer.Argument(metavar="[DIR]", help="Where the names of the files are; this directory.")
    ] = ".",
    drop_replaced: Annotated[
        bool, typer.Option("--drop-replaced", help="Remove files on layers whose name has a newer file by now.")
    ] = False,
) -> None:
    """Bring home the files that killed runs left on storage layers, and remove what else they left.

    Layers are those of the settings in DIR, and those that runs of yours have used. What a living run uses is not
    touched. The exit status is 1 if something could not be brought home.
    """
    from penstock.errors import ConfigError
    from penstock.runtime import bringing_home
    from penstock.runtime.config import load_config
    from penstock.runtime.directories import places_of_runs
    from penstock.units import format_size

    if not os.path.isdir(directory):
        typer.echo(f"penstock: there is no directory {directory}", err=True)
        raise typer.Exit(2)
    try:
        config = load_config({}, cwd=os.path.abspath(directory)).config
        mounts = _mounts(config)
    except ConfigError as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None
    counts: Counter[str] = Counter()
    for deed in bringing_home.recover(directory, mounts, places_of_runs(config), drop_replaced=drop_replaced):
        counts[deed.what] += 1
        size = f"{format_size(deed.size)} " if deed.what == "home" else ""
        about = f"{deed.path}: {deed.about}" if deed.what == "left" else f"{deed.path}  ({size}{deed.about})"
        typer.echo(f"{deed.what:<8} {about}")
    if not counts:
        typer.echo("nothing to recover")
        return
    typer.echo(f"{counts['home']} brought home, {counts['removed']} removed, {counts['left']} left")
    if counts["left"]:
        raise typer.Exit(1)


def _mounts(config: Config) -> list[str]:
    """The layers of a run that is started here, whether they are there now or not."""
    described = config.storage
    if config.resources_file is not None:
        from penstock.runtime.compss_xml import layers_of_this_host

        described = layers_of_this_host(config.resources_file)
    if described is not None:
        return [one.layer.mount for one in described]
    from penstock.runtime.found_layers import find_layers

    return [found.layer.mount for found in find_layers(memory=config.memory_dir)]
