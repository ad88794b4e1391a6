"""The command line. Each command imports what it needs when it runs, so that `zooport --help` is there at once."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from exporters.errors import ZooportError
from orchestration.store_command import store_app


class _Group(TyperGroup):
    """Turns what zooport raises on purpose into two lines and an exit status; a traceback remains for what is a bug."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ZooportError as error:
            from orchestration.console import print_zooport_error

            print_zooport_error(error)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Every transformers model class through torch.export to ONNX and ExecuTorch, one stage at a time.",
)
app.add_typer(store_app, name="store")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]


@app.command()
def export(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="A class of the zoo, a name of zoo.toml, a checkpoint folder, a hub id or a .py file."),
    ],
    backend: Annotated[list[str] | None, typer.Option(help="Where to; several by repeating it or with commas.  [default: onnx]")] = None,
    out: Annotated[Path | None, typer.Option(help="Also put the artifact into this folder.", file_okay=False)] = None,
    static: Annotated[bool, typer.Option("--static", help="Keep every axis at its traced size.")] = False,
    pack: Annotated[bool, typer.Option("--pack", help="Make the artifact self-contained, its weights included.")] = False,
    max_sizes: Annotated[
        list[str] | None, typer.Option("--max", metavar="NAME=N", help="Upper bound of a dynamic axis; repeatable.")
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set version.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare with eager on the runtime.")] = True,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Make every stage anew.")] = False,
    try_known: Annotated[bool, typer.Option("--try-known", help="Also try what a known issue keeps from being exported.")] = False,
    as_json: Json = False,
) -> None:
    """Export models: a row a stage as it ends, then parity, outcome and where the artifact lies."""
    from orchestration import export_command

    options: dict[str, Any] = {
        "dynamic": not static,
        "pack": pack,
        "verify": verify,
        "use_cache": not no_cache,
        "skip_known": not try_known,
        "max_sizes": export_command.parse_sizes(max_sizes or []),
    }
    if out is not None:
        options["out"] = str(out.absolute())
    if opset is not None:
        options["opset"] = opset
    backends = _split(backend) or ["onnx"]
    asked = export_command.goal(static=static, verify=verify)
    raise typer.Exit(export_command.export(models, backends, options=options, asked=asked, as_json=as_json))


zoo_app = typer.Typer()
app.add_typer(zoo_app, name="zoo")


@zoo_app.callback(invoke_without_command=True)
def zoo(
    context: typer.Context,
    family: Annotated[str | None, typer.Option(help="Only this family: text, vision, audio, ..., or checkpoint.")] = None,
    check: Annotated[str | None, typer.Option(help="Try each class in a child of its own instead: forward.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="With --check: only what failed before.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="With --check: the classes that transformers keeps to itself.")] = False,
    docs: Annotated[Path | None, typer.Option(help="With --check: also write the results to this file.", dir_okay=False)] = None,
    as_json: Json = False,
) -> None:
    """List the model classes and the named checkpoints, and the outcome of each by backend so far; or name a checkpoint."""
    if context.invoked_subcommand is not None:
        return
    if check is not None:
        from orchestration.zoo_check_command import check_zoo

        raise typer.Exit(check_zoo(check, family, failed=failed, internal=internal, docs=docs, as_json=as_json))
    from orchestration.zoo_command import show_zoo

    show_zoo(family, as_json=as_json)


@zoo_app.command("add")
def zoo_add(
    name: Annotated[str, typer.Argument(help="How `zooport export` and Dagster shall call it.")],
    where: Annotated[str, typer.Argument(metavar="PATH_OR_HUB_ID", help="A checkpoint folder, or organization/name.")],
    task: Annotated[str | None, typer.Option(help="What to load it for, such as text-classification; as saved by default.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an entry of this name.")] = False,
    as_json: Json = False,
) -> None:
    """Name a checkpoint.

    Writes an entry into the zoo.toml of the current folder or of the nearest one above it, or where there is none into
    $ZOOPORT_HOME/zoo.toml. Dagster shows it once the code location is reloaded.
    """
    from orchestration.zoo_command import add_checkpoint

    add_checkpoint(name, where, task=task or "", revision=revision or "", replace=replace, as_json=as_json)


@app.command()
def workarounds(
    unused: Annotated[bool, typer.Option("--unused", help="Only those that did nothing in all that was exported so far.")] = False,
    as_json: Json = False,
) -> None:
    """List every registered workaround with the models on which it was called, changed something or was used."""
    from orchestration.ledger_command import show_workarounds

    show_workarounds(unused=unused, as_json=as_json)


@app.command()
def stale(as_json: Json = False) -> None:
    """Say what of the exports so far is out of date, and what has changed since."""
    from orchestration.ledger_command import show_stale

    show_stale(as_json=as_json)


@app.command()
def drift(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A class of the zoo, a checkpoint folder, a hub id or a .py file.")],
    backend: Annotated[str, typer.Option(help="Whose stages to follow.")],
    as_json: Json = False,
) -> None:
    """Run the same inputs through every stage, and name the first stage and node whose numbers leave eager's."""
    from orchestration.drift_command import drift as run_drift

    raise typer.Exit(run_drift(model, backend, as_json=as_json))


@app.command()
def ablate(
    workarounds: Annotated[list[str] | None, typer.Argument(metavar="[WORKAROUND...]", help="onnx:_aten_sort_stable, ...")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every workaround that is registered.")] = False,
    models: Annotated[list[str] | None, typer.Option(help="Only these exports; several by repeating it or with commas.")] = None,
    runs: Annotated[bool, typer.Option("--run/--no-run", help="With --no-run: only what was measured before.")] = True,
    one_is_enough: Annotated[
        bool, typer.Option("--one-is-enough", help="Stop at the first export that needs it, the cheapest first.")
    ] = False,
    docs: Annotated[Path | None, typer.Option(help="Also write the results to this file.", dir_okay=False)] = None,
    as_json: Json = False,
) -> None:
    """Run the exports that a workaround had a part in again without it, and say whether it is still needed."""
    from orchestration import ablate_command

    raise typer.Exit(
        ablate_command.ablate(
            workarounds or [],
            everything=everything,
            models=_split(models),
            runs=runs,
            one_is_enough=one_is_enough,
            docs=docs,
            as_json=as_json,
        )
    )


@app.command()
def fleet(
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL...]", help="Classes of the zoo or names of zoo.toml.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every class of the zoo and every named checkpoint.")] = False,
    family: Annotated[list[str] | None, typer.Option(help="Every class of a family: text, vision, ..., or checkpoint; repeatable.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only N models, spread evenly, the same ones every time.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what is out of date, as `zooport stale` tells.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only what isn't verified, or was left by a fleet that was ended.")] = False,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="Where to; several by repeating it or with commas.  [default: onnx; with --stale and --failed: all]"),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Exports at once; 0 for what the machine allows.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time limit of one export.")] = 1800,
    memory: Annotated[int, typer.Option(min=0, metavar="MB", help="Memory limit of one export; 0 for a share of the machine's.")] = 0,
    queue: Annotated[bool, typer.Option("--queue", help="Only queue the runs, for the daemon to start where deploy/ says.")] = False,
    as_json: Json = False,
) -> None:
    """Export many models as Dagster runs on the local instance, several at once, each in a child with limits."""
    from orchestration.fleet_command import Choice, queue_fleet, run_fleet
    from orchestration.resources import PoolRunner
    from orchestration.selection import Scope

    scope = Scope(tuple(models or ()), tuple(_split(backend)), tuple(_split(family)))
    choice = Choice(scope, everything=everything, stale=stale, failed=failed, sample=sample)
    if queue:
        queue_fleet(choice, as_json=as_json)
        return
    runner = PoolRunner(workers=workers, timeout_seconds=timeout, memory_mb=memory)
    raise typer.Exit(run_fleet(choice, runner, as_json=as_json))


def _split(values: list[str] | None) -> list[str]:
    """Values that were given by repeating an option or with commas."""
    return [name.strip() for names in values or [] for name in names.split(",")]


@app.command()
def report(
    html: Annotated[Path | None, typer.Option(help="Also write it as a page, one file that needs nothing else.", dir_okay=True)] = None,
    since: Annotated[
        str | None, typer.Option(help="Compare with how things stood then: 2026-11-23, 7d, 2w.  [default: the last report]")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every name and every cause, in full.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if anything broke.")] = False,
    as_json: Json = False,
) -> None:
    """Say what broke since the last report and where, what each cause of failure holds back, and what the exports cost."""
    from orchestration import report_command

    raise typer.Exit(report_command.report(html=html, since=since, everything=everything, check=check, as_json=as_json))


@app.command()
def demo() -> None:
    """Materialize three models for ONNX and ExecuTorch through Dagster, on the instance that `make ui` shows."""
    from orchestration.demo import run_demo

    raise typer.Exit(run_demo())


def main() -> None:
    """Entry point of the `zooport` script."""
    app()
