"""One model through the stages of one backend: what the command line, Dagster and tests all call.

A stage whose key was seen before is read from the store, and torch is imported only for one that was not. As a program
(`python -m exporters.chain`) this reads one `Request` as JSON on standard input and writes events as JSON lines on standard output.
"""

import contextlib
import gc
import json
import logging
import os
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from exporters import known_issues, ledger, publish, source
from exporters.backends import STAGES, family_of
from exporters.code_index import code_index
from exporters.configs import NATIVE_OPSET, OnnxConfig
from exporters.errors import CorruptArtifact, ExportError, MissingPackage, StoreError, UsageError, ZooportError
from exporters.home import store_of
from exporters.keys import Options, SampleReference, baked_weights, environment, sample_parts, stage_parts, verification_parts
from exporters.ledger import Reference
from exporters.registered import with_registered
from exporters.report import ErrorReport, Parity, Report, StageReport, Started
from exporters.reports import remember
from exporters.source import Source
from exporters.store import Store
from exporters.zoo import requirements

Event = Started | StageReport | Parity | Report


class Request(BaseModel):
    """What to export, for what, and how.

    Attributes:
        model: a class of the zoo, or a local checkpoint folder.
        home: where the store and the exports lie (`exporters.home.home()`).
        store: URL of the store, any that fsspec knows; `$ZOOPORT_STORE` by default, else inside `home`.
        max_sizes: upper bounds of dynamic axes, by name.
        out: also put the export into this folder; `pack` makes it self-contained.
        use_cache: False makes every stage anew.
        skip_known: False tries also what `exporters.known_issues` says can't be exported.
        run: what the caller calls this run; kept with what it makes.
        until: the last stage that is wanted; the chain ends there, and what is known of the whole export stays as it was.
        cached_only: end with `NeedsModel`, and without a report, where anything would need the model or torch.
        runtimes: address of a zygote (`exporters.zygote`) whose children run what was exported; by default a new process does.
    """

    model: str
    backend: str = "onnx"
    home: str
    store: str = ""
    dynamic: bool = True
    max_sizes: dict[str, int] = Field(default_factory=dict)
    opset: int = NATIVE_OPSET
    optimize: bool = True
    verify: bool = True
    out: str | None = None
    pack: bool = False
    use_cache: bool = True
    skip_known: bool = True
    until: str | None = None
    run: str = ""
    cached_only: bool = False
    runtimes: str = ""


class NeedsModel(Exception):
    """Not everything that was asked for is in the store."""


def run(request: Request, on_event: Callable[[Event], None] | None = None) -> Report:
    """Run a chain in this process. A stage that fails ends it, and the report says where and why.

    Raises:
        UsageError: the request is wrong.
        StoreError: the store or the output folder can't be written.
        NeedsModel: only what is cached was wanted, and something isn't.
    """
    return _Chain(request, on_event or (lambda event: None)).run()


class _Chain:
    def __init__(self, request: Request, say: Callable[[Event], None]) -> None:
        self._request = request
        self._say = say
        self._family = family_of(request.backend)
        if self._family == "onnx":
            OnnxConfig(opset=request.opset)  # refuses an opset that can't be had, before anything is imported
        if request.pack and not request.out:
            raise UsageError("--pack says how to write an output folder", next="add --out FOLDER")
        self._source: Source = source.resolve(request.model)
        if request.out:
            publish.check_target(Path(request.out))
        self._home = Path(request.home)
        self._store = Store(request.store or store_of(self._home), cache=self._home / "cache" / "artifacts")
        self._report = Report(
            model=request.model,
            backend=request.backend,
            revision=self._source.revision,
            shapes="dynamic" if request.dynamic else "static",
            outcome="failed",
            run=request.run,
        )
        self._options = Options(request.backend, request.dynamic, request.max_sizes, request.opset, request.optimize)
        self._index = with_registered(code_index(self._home / "cache"))
        self._sample: SampleReference | None = None
        self._maker: Any = None
        self._upstream: Path | None = None
        self._begun = ""  # a stage that hasn't said so yet

    def run(self) -> Report:
        with _no_cyclic_collection():
            return self._run()

    def _run(self) -> Report:
        name, request = self._source.zoo_name, self._request
        known = known_issues.skip_reason(name, request.backend, dynamic=request.dynamic) if request.skip_known else ""
        reason = known or requirements.skip_reason(name)
        if reason:
            return self._skip(reason)
        try:
            digest = ""
            for stage in STAGES[self._family]:
                digest = self._stage(stage, digest)
                if stage == request.until:
                    self._report.reason = f"ends after {stage}, as asked"
                    self._say(self._report)
                    return self._report
            self._report.outcome = "exported"
            self._report.cpu_seconds = _cpu()
            assert self._upstream is not None
            self._publish(self._upstream)
            if request.verify:
                self._verify(self._upstream, digest)
        except MissingPackage as error:
            return self._skip(error.message)
        except ExportError as error:
            self._report.error = ErrorReport(
                stage=error.stage,
                type=error.cause_type,
                message=error.message,
                active_workarounds=list(error.active_workarounds),
                next=error.next,
            )
        return self._finish()

    def _skip(self, reason: str) -> Report:
        self._report.outcome, self._report.reason = "skipped", reason
        return self._finish()

    # ── Stages ────────────────────────────────────────────────────────────────

    def _stage(self, stage: str, input_digest: str) -> str:
        """Bring one stage about, from the store or anew; its digest."""
        self._begun = stage
        wall, cpu = time.perf_counter(), _cpu()
        sample = self._identified()
        parts = stage_parts(stage, self._options, input_digest or sample.digest, baked_weights(stage, self._source, sample), self._index)
        known = self._reference(stage)
        if known is not None and not ledger.differences(known, parts, self._recipe(known.record, stage)):
            try:
                self._upstream = self._store.get(known.digest)
            except CorruptArtifact:
                pass  # set aside by the store, and made again below
            else:
                return self._ended(_cached(known, parts), wall, cpu)
        return self._make(stage, parts, wall, cpu)

    def _reference(self, stage: str) -> Reference | None:
        """What the store has for a stage; None also for what another version wrote, which is made again."""
        content = self._store.read_ref(self._family, stage, self._request.backend, self._source.name) if self._request.use_cache else None
        try:
            return None if content is None else Reference.model_validate(content)
        except ValidationError:
            return None

    def _recipe(self, record: ledger.Record, stage: str) -> ledger.Recipe:
        return ledger.recipe(record, self._index, self._request.backend, stage)

    def _identified(self) -> SampleReference:
        """The sample's digests: known from the store, or by building it."""
        if self._sample is None:
            parts = sample_parts(self._source, self._index)
            content = self._store.read_ref("samples", self._source.name) if self._request.use_cache else None
            with contextlib.suppress(TypeError):  # of another version's fields
                known = SampleReference(**content) if content else None
                if known is not None and known.still_holds(parts):
                    self._sample = known
        if self._sample is None:
            maker = self._get_maker()
            identity, selects = maker.identity()
            self._sample = SampleReference(identity.digest, maker.weights_digest, parts, identity.files, selects, identity.source)
            self._store.write_ref("samples", self._source.name, content=asdict(self._sample))
        self._report.inputs = self._sample.source
        return self._sample

    def _make(self, stage: str, parts: dict[str, Any], wall: float, cpu: float) -> str:
        maker = self._get_maker()
        folder = self._store.scratch()
        try:
            made = maker.make(stage, self._upstream, folder)
            before_publishing = _cpu()
            size = sum(path.stat().st_size for path in folder.iterdir())
            digest = self._store.put(folder)
        except OSError as error:
            raise StoreError(
                f"can't write to {self._home}: {error.strerror or error}", next="free some space, or set ZOOPORT_HOME elsewhere"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._upstream = self._store.get(digest)
        recipe = self._recipe(made.record, stage)
        report = StageReport(
            stage=stage,
            recipe=ledger.recipe_version(parts, recipe),
            bytes=size,
            digest=digest,
            path=self._store.path(digest),
            nodes=made.nodes,
            operators=made.operators,
            fired=made.record.deeds.fired,
            deeds=made.record.deeds,
            details=made.details,
            save_cpu_seconds=maker.save_cpu_seconds + _cpu() - before_publishing,
        )
        self._ended(report, wall, cpu)
        reference = Reference(
            digest=digest,
            model=self._request.model,
            parts=parts,
            recipe=recipe,
            record=made.record,
            report=report,
            made_at=time.time(),
            made_by=self._request.run,
        )
        self._store.write_ref(self._family, stage, self._request.backend, self._source.name, content=reference.model_dump())
        return digest

    def _ended(self, report: StageReport, wall: float, cpu: float) -> str:
        report.seconds = round(time.perf_counter() - wall, 4)
        report.cpu_seconds = round(_cpu() - cpu, 4)
        report.save_cpu_seconds = round(report.save_cpu_seconds, 4)
        report.peak_rss_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        self._begun = ""
        self._report.stages.append(report)
        self._say(report)
        return report.digest

    def _get_maker(self) -> Any:
        if self._request.cached_only:
            raise NeedsModel
        self._say_started()
        if self._maker is None:
            _quieten_warnings()
            from exporters.stage_makers import StageMaker

            _quieten_loggers()  # torch sets their levels when it is imported
            options = self._request.model_dump(include={"dynamic", "opset", "optimize", "max_sizes"})
            self._maker = StageMaker(self._source, self._request.backend, options, self._home / "weights")
            if self._sample is not None:
                self._maker.weights_digest = self._sample.weights
        return self._maker

    def _say_started(self) -> None:
        """Once for each stage that isn't only read from the store."""
        if self._begun:
            self._say(Started(stage=self._begun))
            self._begun = ""

    # ── After the last stage ──────────────────────────────────────────────────

    def _publish(self, artifact: Path) -> None:
        """Put the export where people find it, and into the folder asked for."""
        request = self._request
        provenance = {
            "model": request.model,
            "revision": self._source.revision,
            "backend": request.backend,
            "stages": {s.stage: s.digest for s in self._report.stages},
        }
        current = self._home / "exports" / request.backend / self._source.name
        made_from = _read_json(current / publish.PROVENANCE)
        main_file = current / publish.MAIN_FILE[self._family]
        if any(made_from.get(key, "") != value for key, value in provenance.items()) or not main_file.exists():
            main_file = publish.publish(artifact, self._weight_files(), current, family=self._family, provenance=provenance)
        if request.out:
            out = Path(request.out)
            if request.pack:
                main_file = publish.pack(artifact, self._get_maker().weights, out, family=self._family, provenance=provenance)
            else:
                main_file = publish.publish(artifact, self._weight_files(), out, family=self._family, provenance=provenance)
        self._report.artifact = str(main_file)

    def _weight_files(self) -> list[Path]:
        return [] if self._family == "executorch" else self._get_maker().weights.files

    def _verify(self, artifact: Path, digest: str) -> None:
        wall_cpu = _cpu() + _children_cpu()
        parts = verification_parts(digest, self._identified(), self._options, self._index)
        known = self._known_outcome(parts)
        if known is not None:
            self._report = self._report.model_copy(
                update={name: getattr(known, name) for name in ("outcome", "parity", "load_seconds", "error")}
            )
            for row in known.parity:
                self._say(row)
            return
        self._begun = "verification"
        maker = self._get_maker()
        from exporters.stages import running
        from exporters.verification import verify

        with running("verification", self._request.backend, self._source.name):
            result = verify(
                maker.sample,
                artifact,
                maker.weights,
                backend=self._request.backend,
                dynamic=self._request.dynamic,
                on_parity=self._say,
                runtimes=self._request.runtimes,
            )
        self._report.outcome, self._report.parity = result.outcome, result.parity
        self._report.load_seconds, self._report.error = result.load_seconds, result.error
        self._report.verify_cpu_seconds = round(_cpu() + _children_cpu() - wall_cpu + result.cpu_seconds_elsewhere, 3)
        if result.error is None or result.error.type != "Timeout":
            content = {"parts": parts, "report": self._report.model_dump()}
            self._store.write_ref("verification", self._request.backend, self._source.name, content=content)

    def _known_outcome(self, parts: dict[str, Any]) -> Report | None:
        """The report of a verification of the same artifact on the same runtime."""
        reference = self._store.read_ref("verification", self._request.backend, self._source.name) if self._request.use_cache else None
        try:
            return Report.model_validate(reference["report"]) if reference and reference.get("parts") == parts else None
        except (ValidationError, KeyError):
            return None  # another version's

    def _finish(self) -> Report:
        self._report.cpu_seconds = round(self._report.cpu_seconds or _cpu(), 3)
        self._report.at = time.time()
        # as whoever looks for what is stale sees it, from the sources alone
        self._report.environment = environment(self._request.backend, code_index(self._home / "cache"))
        remember(self._store, self._report)
        self._say(self._report)
        return self._report


def _cached(known: Reference, parts: dict[str, Any]) -> StageReport:
    """The report of a stage that was found: what it is, and what making it cost whom and when."""
    costs = known.report.model_dump(include={"seconds", "cpu_seconds", "save_cpu_seconds", "peak_rss_mb"})
    made = {**costs, "at": known.made_at, "by": known.made_by}
    found = {"cached": True, "save_cpu_seconds": 0.0, "recipe": ledger.recipe_version(parts, known.recipe)}
    return known.report.model_copy(update={**found, "details": {**known.report.details, "made": made}})


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _cpu() -> float:
    return time.process_time()


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _no_cyclic_collection() -> Iterator[None]:
    """Tracing makes millions of objects that live until its end: looking for cycles among them takes an eighth of an export's CPU.

    Measured on llama to ONNX: 9.7 to 8.5 CPU s, 524 to 547 MiB.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quieten_warnings() -> None:
    """Keep deprecations inside the libraries off a user's screen."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")


def _quieten_loggers() -> None:
    """Keep notes about optional packages that aren't there off a user's screen."""
    for name in ("torch.onnx", "torch.export", "torch._export", "torch.utils._pytree", "torchao"):
        logging.getLogger(name).setLevel(logging.ERROR)


# ── As a process of its own ───────────────────────────────────────────────────


def serve(request: dict[str, Any]) -> int:
    """Run a request and write its events to standard output, as lines of JSON; 0 if there is a report.

    The function of a zygote's child. `{"event": "needs_model"}` is the last line where only what is cached was wanted, and something isn't.
    """
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    names: dict[type, str] = {StageReport: "stage", Parity: "parity", Report: "report"}

    def say(event: Event) -> None:
        if isinstance(event, Started):
            print(json.dumps({"event": "start", "stage": event.stage}), file=protocol)
        else:
            name = names[type(event)]
            print(json.dumps({"event": name, name: event.model_dump()}), file=protocol)

    try:
        run(Request.model_validate(request), say)
    except NeedsModel:
        print(json.dumps({"event": "needs_model"}), file=protocol)
    except ZooportError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(serve(json.load(sys.stdin)))
