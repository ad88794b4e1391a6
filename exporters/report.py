"""What an export says about itself: the stages it ran, the numbers it matched, the outcome it reached.

Plain data, no torch: the command line, Dagster and the verification process all read and write these.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

Outcome = Literal["skipped", "failed", "exported", "loaded", "ran", "matched", "verified"]

# lowest first; an export's outcome is the highest it reached
OUTCOMES: tuple[Outcome, ...] = ("skipped", "failed", "exported", "loaded", "ran", "matched", "verified")


class Started(BaseModel):
    """A stage has begun."""

    stage: str


class Deeds(BaseModel):
    """What workarounds did in one stage, by name: how often each patch was called, how many nodes each fix changed, how often each
    translation was used."""

    called: dict[str, int] = Field(default_factory=dict)
    changed: dict[str, int] = Field(default_factory=dict)
    used: dict[str, int] = Field(default_factory=dict)

    @property
    def fired(self) -> list[str]:
        """Names of all that did anything, sorted."""
        return sorted({*self.called, *self.changed, *self.used})


class StageReport(BaseModel):
    """One stage of one export.

    `seconds` and `cpu_seconds` cover making and saving the artifact (CPU of the process and its children), `peak_rss_mb`
    is the process' high-water mark in MiB at the stage's end, `bytes` the size of the artifact's files. `save_cpu_seconds` is the
    part of `cpu_seconds` that writing and publishing took. `recipe` is a digest of all that can change the stage's result beside the stage
    before it (`exporters.ledger.recipe_version`). For a cached stage the costs are those of this run, and `details["made"]`
    has those of the run that made the artifact, when (`at`, seconds since the epoch) and in which run (`by`).
    """

    stage: str
    cached: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    save_cpu_seconds: float = 0.0
    peak_rss_mb: float = 0.0
    bytes: int = 0
    digest: str = ""
    recipe: str = ""
    path: str = ""
    nodes: int = 0
    operators: dict[str, int] = Field(default_factory=dict)
    fired: list[str] = Field(default_factory=list)
    deeds: Deeds = Field(default_factory=Deeds)
    details: dict[str, Any] = Field(default_factory=dict)


class Parity(BaseModel):
    """One comparison with eager: `inputs` names the input set, `max_abs_diff` is over all floating outputs."""

    inputs: str
    ok: bool
    max_abs_diff: float | None = None
    message: str = ""


class ErrorReport(BaseModel):
    """Where an export stopped, why, and what to do next."""

    stage: str
    type: str
    message: str
    active_workarounds: list[str] = Field(default_factory=list)
    next: str = ""


class Report(BaseModel):
    """One model through one backend's chain.

    `revision` is the commit of a checkpoint from the hub; `at` is when the export ended, in seconds since the epoch, and `run` what its
    caller calls the run that it was part of (`exporters.chain.Request.run`), empty for the command line.
    `environment` is a digest of the packages and the code that it ran with (`exporters.keys.environment`).
    `inputs` says where the inputs come from: the generic rules, or what through which tokenizer or processor; after `rules:` stands why a
    checkpoint's own gave none.
    `cpu_seconds` is the CPU of the process from its start to the end of the last stage, imports included; `verify_cpu_seconds` that of
    the verification, its child process included; `load_seconds` the wall time in which the runtime loaded the artifact.
    """

    model: str
    backend: str
    revision: str = ""
    inputs: str = ""
    shapes: Literal["dynamic", "static"] = "dynamic"
    outcome: Outcome = "failed"
    stages: list[StageReport] = Field(default_factory=list)
    parity: list[Parity] = Field(default_factory=list)
    artifact: str | None = None
    cpu_seconds: float = 0.0
    verify_cpu_seconds: float = 0.0
    load_seconds: float | None = None
    reason: str = ""
    error: ErrorReport | None = None
    at: float = 0.0
    run: str = ""
    environment: str = ""
