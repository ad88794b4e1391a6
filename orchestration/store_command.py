"""`zooport store`: what keeps the artifact store small and whole. Imports what it needs when it runs."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from exporters.store import Store
    from exporters.store_upkeep import Collected, Examined, Progress

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]

store_app = typer.Typer(
    no_args_is_help=True,
    help="""Keep the artifact store small and whole.

    The store is $ZOOPORT_STORE, a folder or any URL that fsspec knows (s3://bucket/prefix); by default a folder in $ZOOPORT_HOME.
    S3 takes the usual AWS_ variables, AWS_ENDPOINT_URL=http://host:port for one that isn't Amazon's; an option of any other file
    system is FSSPEC_<PROTOCOL>_<OPTION>.
    """,
)


@store_app.command()
def gc(
    keep_days: Annotated[
        float,
        typer.Option(
            min=0,
            help="Keep what was used in the last N days, referenced or not: longer than an export takes, since it refers to an "
            "artifact only once that is written. Fractions are fine; 0 only while nothing runs.",
        ),
    ] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Delete artifacts that no reference reaches, and what interrupted exports left behind; exports may run meanwhile."""
    from exporters.home import home
    from exporters.store_upkeep import collect

    store = _store()
    with _progress() as progress:
        collected = collect(store, home=home(), keep_seconds=keep_days * 86_400, dry_run=dry_run, on_progress=progress)
    if as_json:
        _print_json({"store": str(store.root), "dry_run": dry_run}, collected)
    else:
        _print_collected(store, collected, dry_run=dry_run)


@store_app.command()
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Delete what is damaged: the next export makes it again.")] = False,
    as_json: Json = False,
) -> None:
    """Read every artifact and every reference and tell what is damaged and what to do; exit status 1 if anything is."""
    from exporters.home import home
    from exporters.store_upkeep import examine

    store = _store()
    with _progress() as progress:
        examined = examine(store, home=home(), repair=repair, on_progress=progress)
    if as_json:
        _print_json({"store": str(store.root)}, examined)
    else:
        _print_examined(store, examined)
    if examined.findings:
        raise typer.Exit(1)


def _store() -> "Store":
    from exporters.home import home, store_of
    from exporters.store import Store

    return Store(store_of(home()))


@contextlib.contextmanager
def _progress() -> Iterator["Progress"]:
    """What is being done and how much of it, on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console, transient=True, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


# ── What is printed ───────────────────────────────────────────────────────────


def _print_json(head: dict[str, object], result: "Collected | Examined") -> None:
    import json
    import sys
    from dataclasses import asdict

    json.dump({**head, **asdict(result)}, sys.stdout, indent=1)
    print()


def _console() -> "Console":
    import sys

    from orchestration.console import console_on

    return console_on(sys.stdout)


def _print_collected(store: "Store", collected: "Collected", *, dry_run: bool) -> None:
    from rich.filesize import decimal
    from rich.markup import escape

    console = _console()
    verb = "would delete" if dry_run else "deleted"
    for digest in collected.artifacts:
        console.print(f"{verb} artifact {escape(store.path(digest))}")
    for digest in collected.copies:
        console.print(f"{verb} copy of {escape(store.path(digest))}")
    for path in collected.leftovers:
        console.print(f"{verb} leftover {escape(path)}")
    gone = {"artifacts": collected.artifacts, "copies": collected.copies, "leftovers": collected.leftovers}
    console.print(f"{verb}: {', '.join(f'{what} {len(which)}' for what, which in gone.items())}; {decimal(collected.freed_bytes)}")
    console.print(f"kept: artifacts {collected.kept}, without a reference but used lately {collected.kept_for_now}")


def _print_examined(store: "Store", examined: "Examined") -> None:
    from rich.filesize import decimal
    from rich.markup import escape

    console = _console()
    for finding in examined.findings:
        console.print(f"[bold red]{finding.kind}[/] {escape(finding.path)}: {escape(finding.problem)}")
        console.print(f"  [bold]next[/] {'run the export again' if finding.repaired else escape(finding.next)}")
    console.print(
        f"{escape(str(store.root))}: artifacts {examined.artifacts}, without a reference {examined.unreferenced}, "
        f"references {examined.references}; {decimal(examined.bytes)} read"
    )
    repaired = sum(finding.repaired for finding in examined.findings)
    if repaired:
        console.print(f"[yellow]damaged, and deleted now: {repaired}[/]")
    elif examined.findings:
        console.print(f"[bold red]damaged: {len(examined.findings)}[/]")
    else:
        console.print("[bold green]nothing is damaged[/]")
