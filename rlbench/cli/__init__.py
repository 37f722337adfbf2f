"""The command line: one module per verb, no logic of its own."""

from __future__ import annotations

import signal
import sys

import typer

from rlbench import __version__
from rlbench.errors import UserError

app = typer.Typer(
    name="rlbench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Compare reinforcement-learning libraries by measuring them from outside.\n\n"
    "Start with `rlbench run quickstart`.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rlbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def _register() -> None:
    from rlbench.cli import adapter, diagnose, doctor, env, lab, libraries, overhead, run, scenarios, show

    app.command()(run.run)
    app.command()(show.show)
    app.command()(show.compare)
    app.command()(show.report)
    app.command("diagnose")(diagnose.diagnose_run)
    app.command()(overhead.overhead)
    app.command()(scenarios.scenarios)
    app.command()(libraries.libraries)
    app.add_typer(adapter.adapter_app, name="adapter", help="Start an adapter of your own; hold one to the contract.")
    app.add_typer(env.env_app, name="env", help="Build, list, check and remove the libraries' environments.")
    app.add_typer(lab.lab_app, name="lab", help="Test published claims about asynchronous RL, one experiment each.")
    app.command()(doctor.doctor)
    app.command()(show.schema)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130.

    A request to end (``kill``, a closed terminal) is taken as Ctrl-C, unless it is ignored (``nohup``).
    """
    _register()
    for request in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(request) == signal.SIG_DFL:
            signal.signal(request, signal.default_int_handler)
    try:
        app()
    except UserError as error:
        typer.echo(f"rlbench: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("rlbench: stopped", err=True)
        sys.exit(130)
