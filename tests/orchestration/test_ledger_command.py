"""`zooport stale` and `zooport workarounds` where nothing was exported yet: they say so, rather than count to zero."""

from typer.testing import CliRunner

from orchestration.cli import app


def said(command: str) -> str:
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 0
    return result.stdout.splitlines()[-1]


def test_nothing_exported_yet_is_no_count() -> None:
    assert said("stale") == "nothing was exported here yet"
    assert said("workarounds").endswith("workarounds; nothing was exported here yet")
    assert not said("workarounds").startswith("0 ")
