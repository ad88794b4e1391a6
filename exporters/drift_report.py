"""What `zooport drift` found, as plain data: the command line prints it, a child process sends it. Imports no torch."""

from pydantic import BaseModel, Field

from exporters.report import ErrorReport


class DriftStage(BaseModel):
    """One stage, run on the sample's inputs and compared with eager.

    Attributes:
        ok: whether its numbers are within the parity bound; None where it couldn't be run, `message` says why.
        max_rel_diff: relative to eager's value, or to `exporters.parity.ATOL` where that is larger.
    """

    stage: str
    ok: bool | None
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    message: str = ""


class NodeName(BaseModel):
    """A node: its name in the graph of its stage, what it calls, and the module of the model that it belongs to, where that is known."""

    name: str
    operator: str
    module: str = ""


class DriftNode(NodeName):
    """The first node whose value the stage before doesn't have, with all that it reads right.

    Attributes:
        stage: the stage whose graph it is in.
        counterpart: the first node of the stage before whose value is missing here: what the node should have computed, or what is
            spelled here in several nodes.
        starts_at: where the node's value is the last of several that replace the counterpart, the first of them.
        max_abs_diff: to the counterpart's value; None where their sizes differ.
        fineness: how far the search could look: a node, or what a runtime computes as one (a delegate, a fused operator).
    """

    stage: str
    counterpart: NodeName | None = None
    starts_at: NodeName | None = None
    max_abs_diff: float | None = None
    fineness: str = "one node"


class DriftReport(BaseModel):
    """The stages in order, the first that leaves the bound, and the node.

    Attributes:
        first: name of the first stage outside the bound; None if there is none.
        good: the last stage before it that is inside.
        reason: why there is no node, where a stage leaves the bound and none can be named.
    """

    model: str
    backend: str
    inputs: str = "sample"
    stages: list[DriftStage] = Field(default_factory=list)
    first: str | None = None
    good: str | None = None
    node: DriftNode | None = None
    reason: str = ""
    error: ErrorReport | None = None

    @property
    def exit_code(self) -> int:
        return 0 if self.error is None and all(stage.ok for stage in self.stages) else 1

    def sentence(self) -> str:
        """The finding in words."""
        if self.first is None:
            not_run = [stage.stage for stage in self.stages if stage.ok is None]
            but = f", but {', '.join(not_run)} couldn't be run" if not_run else ""
            return "" if self.error is not None else f"no stage leaves the bound{but}"
        return f"first leaves the bound at {self.first}, {self._where()}"

    def _where(self) -> str:
        node = self.node
        if node is None:
            return f"no single node: {self.reason}"
        words = f"node {node.name} (op {node.operator})"
        if node.starts_at is not None:
            words += f", lowered from {node.starts_at.name} (op {node.starts_at.operator}) on"
        if node.module:
            words += f", in {node.module}"
        if node.counterpart is not None:
            words += f"; {self.good} has {node.counterpart.name} (op {node.counterpart.operator}) there"
        if node.max_abs_diff is not None:
            words += f", off by {node.max_abs_diff:.2g}"
        return words + ("" if node.fineness == "one node" else f" [{node.fineness}]")
