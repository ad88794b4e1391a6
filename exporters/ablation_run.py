"""The runs that an ablation compares: a chain from one of its stages on, each in a forked child, with workarounds left out.

Nothing of the store is written: artifacts go into a folder that is removed again. Reports of runs are appended to `ablation.jsonl` in
zooport's home by all that they depend on, so that what was interrupted goes on where it was.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporters import source
from exporters.ablation import MORE_CPU, NOT_MEASURED, Partition, PartitionResult, exists_for_time, judge
from exporters.backends import STAGES, family_of
from exporters.code_index import CodeIndex, Workaround
from exporters.configs import NATIVE_OPSET
from exporters.errors import CorruptArtifact, ExportError, StoreError, UsageError, ZooportError
from exporters.isolation import Ended, run_forked
from exporters.report import ErrorReport, Report, StageReport
from exporters.source import PACKAGES, RUNTIMES, Source, versions
from exporters.staleness import survey
from exporters.store import Store, json_digest
from exporters.warm import warm_up

# of a run's report: raise it when what is measured changes
FORMAT = 1
CPU_SECONDS = 900
# wall time a second of CPU: a busy machine is no verdict
PATIENCE = 4
MEMORY = 12 << 30
# a difference in CPU this near to the bound is measured once more
_CLOSE = 0.10
# how a child ended that wrote no report, as an error's type
_LATE, _ENDED = "Timeout", "Ended"
_DEFAULTS = {"dynamic": True, "max_sizes": {}, "opset": NATIVE_OPSET, "optimize": True}


class NoRun(Exception):
    """A run says nothing of the workaround: it couldn't be begun, or its machine gave out. `args[0]` says why."""


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        upstream: the artifact that `stage` is made from; None for a trace.
        sample: digests of the sample and of its weights, as the store has them; with another one a comparison would mislead.
        known: reports by the digest of their last artifact, whose verification needn't be done again.
    """

    source: Source
    model: str
    backend: str
    stage: str
    upstream: Path | None
    options: Mapping[str, Any]
    sample: tuple[str, str]
    left_out: tuple[str, ...] = ()
    known: Mapping[str, Report] = field(default_factory=dict)


class Runner:
    """Runs partitions with and without workarounds.

    Args:
        home: zooport's, with the weights and the results of earlier runs.
        cpu_seconds, memory: limits of each run.
        on_run: told of each run before it begins.
        runs: False takes what was measured before, and nothing else.
    """

    def __init__(
        self,
        home: Path,
        store: Store,
        index: CodeIndex,
        *,
        cpu_seconds: int = CPU_SECONDS,
        memory: int = MEMORY,
        on_run: Callable[[str], None] = lambda what: None,
        runs: bool = True,
    ) -> None:
        self._home, self._store, self._index = home, store, index
        self._cpu_seconds, self._memory, self._on_run = cpu_seconds, memory, on_run
        self._file = home / "ablation.jsonl"
        self._known = _read(self._file)
        self._runs = runs
        self._fresh: set[tuple[str, str]] | None = None

    def compare(self, workaround: Workaround, partition: Partition) -> PartitionResult:
        """Run a partition that a workaround touches with it and without it."""
        stage = partition.first_stage(workaround.name)
        assert stage is not None, f"{workaround.name} did nothing to {partition.name}"
        try:
            with_it, without_it = self._pair(workaround, partition, stage)
        except NoRun as reason:
            return PartitionResult(model=partition.model, backend=partition.backend, stage=stage, verdict="unclear", why=str(reason))
        return judge(workaround, stage, with_it, without_it)

    def _pair(self, workaround: Workaround, partition: Partition, stage: str) -> tuple[Report, Report]:
        with_it, without_it = self._both(workaround, partition, stage, 0)
        if exists_for_time(workaround) and with_it.stages and with_it.cpu_seconds:
            share = without_it.cpu_seconds / with_it.cpu_seconds
            if abs(share - MORE_CPU) < _CLOSE:
                again, again_without = self._both(workaround, partition, stage, 1)
                with_it = min(with_it, again, key=lambda report: report.cpu_seconds)
                without_it = min(without_it, again_without, key=lambda report: report.cpu_seconds)
        return with_it, without_it

    def _both(self, workaround: Workaround, partition: Partition, stage: str, turn: int) -> tuple[Report, Report]:
        # a comparison of CPU needs runs one right after the other
        identity = [workaround.name, workaround.fingerprint, turn]
        stored = None if exists_for_time(workaround) or not self._is_fresh(partition) else partition.report_from(stage)
        with_it = stored or self._run(partition, stage, (), identity if exists_for_time(workaround) else [], _stored(partition))
        return with_it, self._run(partition, stage, (workaround.name,), identity, _by_digest(with_it))

    def _is_fresh(self, partition: Partition) -> bool:
        """Whether the store has what would be made now."""
        if self._fresh is None:
            self._fresh = {(state.backend, state.name) for state in survey(self._store, self._index) if state.fresh}
        return (partition.backend, partition.name) in self._fresh

    # ── One run ───────────────────────────────────────────────────────────────

    def _run(self, partition: Partition, stage: str, left_out: tuple[str, ...], identity: list[Any], known: Mapping[str, Report]) -> Report:
        key = self._key(partition, stage, left_out, identity)
        if key not in self._known:
            if not self._runs:
                raise NoRun(NOT_MEASURED)
            what = f"without {left_out[0]}" if left_out else "with everything"
            self._on_run(f"{partition.model} to {partition.backend} from {stage}, {what}")
            plan = self._plan(partition, stage, left_out, known)
            warm_up(partition.family)
            with tempfile.TemporaryDirectory(prefix="zooport-ablation-") as folder:
                try:
                    ended = run_forked(
                        lambda say: _work(plan, self._home / "weights", Path(folder), self._cpu_seconds, say),
                        seconds=PATIENCE * self._cpu_seconds,
                        memory=self._memory,
                    )
                finally:
                    _end_strays(folder)
            report = _report_of(plan, ended, self._cpu_seconds)
            if not left_out and report.error is not None and report.error.type in (_LATE, _ENDED):
                raise NoRun(f"with everything, {report.error.stage}: {report.error.message}")
            self._remember(key, left_out, report)
        return self._known[key]

    def _plan(self, partition: Partition, stage: str, left_out: tuple[str, ...], known: Mapping[str, Report]) -> Plan:
        digest = partition.upstream(stage)
        try:
            resolved = source.resolve(partition.model)
            # here and not in the child: what talks to a remote store doesn't survive a fork
            upstream = self._store.get(digest) if digest is not None else None
        except (UsageError, CorruptArtifact) as error:
            raise NoRun(str(error.args[0])) from error
        sample = self._store.read_ref("samples", partition.name)
        if sample is None:
            raise NoRun("the store doesn't know its sample any more: export it again")
        return Plan(
            source=resolved,
            model=partition.model,
            backend=partition.backend,
            stage=stage,
            upstream=upstream,
            options={**_DEFAULTS, **partition.options()},
            sample=(sample["digest"], sample["weights"]),
            left_out=left_out,
            known=known,
        )

    def _key(self, partition: Partition, stage: str, left_out: tuple[str, ...], identity: list[Any]) -> str:
        """Digest of all that a run depends on."""
        made = {name: [each.digest, each.parts["input"], each.parts["config"], each.recipe] for name, each in partition.references.items()}
        family = partition.family
        packages = versions((*PACKAGES[family], *RUNTIMES[family]))
        code = [self._index.core[family], self._index.core["verification"]]
        return json_digest([FORMAT, partition.backend, partition.name, stage, left_out, identity, made, packages, code])

    def _remember(self, key: str, left_out: Sequence[str], report: Report) -> None:
        self._known[key] = report
        line = {"key": key, "model": report.model, "backend": report.backend, "left_out": left_out, "report": report.model_dump()}
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            raise StoreError(
                f"can't write {self._file}: {error.strerror or error}", next="free some space, or set ZOOPORT_HOME elsewhere"
            ) from error


def _stored(partition: Partition) -> dict[str, Report]:
    return _by_digest(partition.verified) if partition.verified is not None else {}


def _by_digest(report: Report) -> dict[str, Report]:
    whole = report.stages and report.stages[-1].stage == STAGES[family_of(report.backend)][-1]
    return {report.stages[-1].digest: report} if whole and report.parity else {}


def _read(file: Path) -> dict[str, Report]:
    """Earlier runs by key; a line that a killed run left half written, or of another version, is passed over."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                found[row["key"]] = Report.model_validate(row["report"])
    return found


def _end_strays(folder: str) -> None:
    """End what still works on a run's folder: a runtime has a session of its own, and so outlives the killed child that waits for it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if folder.encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


# ── What a child does ─────────────────────────────────────────────────────────


def _work(plan: Plan, weights: Path, folder: Path, cpu_seconds: int, say: Callable[[Any], None]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    # a chain makes millions of objects that live until its end
    gc.disable()
    tempfile.tempdir = str(folder)  # whatever is left behind goes with it
    try:
        _Chain(plan, weights, folder, say).run()
    except NoRun as reason:
        say({"no_run": str(reason)})
    except ZooportError as error:
        say({"no_run": str(error.args[0]) if error.args else type(error).__name__})


class _Chain:
    """The stages of a plan and their verification, told as they end."""

    def __init__(self, plan: Plan, weights: Path, folder: Path, say: Callable[[Any], None]) -> None:
        from exporters.stage_makers import StageMaker

        self._plan, self._say = plan, say
        self._scratch = Store(folder / "store")
        self._maker = StageMaker(plan.source, plan.backend, plan.options, weights)
        self._report = _new_report(plan)

    def run(self) -> None:
        from exporters.utils import leaving_out

        plan = self._plan
        identity, _ = self._maker.identity()
        if (identity.digest, self._maker.weights_digest) != plan.sample:
            raise NoRun("its sample has changed since it was exported: export it again")
        try:
            with leaving_out(plan.left_out):
                artifact, digest = self._stages()
            self._report.outcome = "exported"
            self._verify(artifact, digest)
        except ExportError as error:
            self._report.error = ErrorReport(stage=error.stage, type=error.cause_type, message=error.message, next=error.next)
        self._say({"report": self._report.model_dump()})

    def _stages(self) -> tuple[Path, str]:
        """Make every stage from the plan's on; the last artifact."""
        plan = self._plan
        upstream = plan.upstream
        stages = STAGES[family_of(plan.backend)]
        digest = ""
        for stage in stages[stages.index(plan.stage) :]:
            self._say({"stage": stage})
            wall, cpu = time.perf_counter(), time.process_time()
            folder = self._scratch.scratch()
            made = self._maker.make(stage, upstream, folder)
            seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
            size = sum(path.stat().st_size for path in folder.iterdir())
            digest = self._scratch.put(folder)
            upstream = self._scratch.get(digest)
            report = StageReport(
                stage=stage,
                seconds=round(seconds, 3),
                cpu_seconds=round(cpu_seconds, 3),
                bytes=size,
                digest=digest,
                nodes=made.nodes,
                operators=made.operators,
                fired=made.record.deeds.fired,
                details=made.details,
            )
            self._say({"made": report.model_dump()})
            self._report.stages.append(report)
            self._report.cpu_seconds = round(self._report.cpu_seconds + cpu_seconds, 3)
        assert upstream is not None
        return upstream, digest

    def _verify(self, artifact: Path, digest: str) -> None:
        known = self._plan.known.get(digest)
        if known is None:
            known = self._verified(artifact)
        self._report.outcome, self._report.parity = known.outcome, known.parity
        self._report.load_seconds, self._report.error = known.load_seconds, known.error

    def _verified(self, artifact: Path) -> Any:
        from exporters.stages import running
        from exporters.verification import verify

        plan, maker = self._plan, self._maker
        self._say({"stage": "verification"})
        with running("verification", plan.backend, plan.source.name):
            return verify(
                maker.sample,
                artifact,
                maker.weights,
                backend=plan.backend,
                dynamic=bool(plan.options["dynamic"]),
            )


def _new_report(plan: Plan) -> Report:
    return Report(model=plan.model, backend=plan.backend, shapes="dynamic" if plan.options["dynamic"] else "static", outcome="failed")


# ── What became of it ─────────────────────────────────────────────────────────


def _report_of(plan: Plan, ended: Ended, limit: int) -> Report:
    """The child's report; of one that ended without, a failure in the stage that it was in.

    Raises:
        NoRun: it didn't get as far as the first stage, or was still waiting for its turn when patience ended.
    """
    last = ended.lines[-1] if ended.lines else {}
    if "report" in last:
        return Report.model_validate(last["report"])
    if "no_run" in last:
        raise NoRun(last["no_run"])
    stage = next((line["stage"] for line in reversed(ended.lines) if "stage" in line), None)
    if ended.how == "timeout":
        raise NoRun(f"no answer within {PATIENCE * limit} s: try again on a quieter machine")
    late = ended.how == "SIGXCPU"
    said = [line.strip() for line in ended.tail.splitlines() if line.strip()] or ["it said nothing"]
    message = f"took more than {limit} s of CPU" if late else f"the process ended ({ended.how or 'without a report'}): {said[-1]}"
    if stage is None:
        raise NoRun(f"before the first stage {message}")
    report = _new_report(plan)
    report.stages = [StageReport.model_validate(line["made"]) for line in ended.lines if "made" in line]
    report.error = ErrorReport(stage=stage, type=_LATE if late else _ENDED, message=message)
    return report
