"""How an export is asked for: one frozen config a family, each the next one's base."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from exporters.errors import UsageError

# torchlib, the translations of torch.onnx's exporter, is written for opset 18 and up: what is below is reached by
# down-conversion only, what is above the newest that the pinned onnx and ONNX Runtime both know can't be had.
NATIVE_OPSET = 18
MAX_OPSET = 23


class DynamoConfig(BaseModel):
    """How a model is traced.

    Attributes:
        dynamic: mark axes as dynamic. Without `dynamic_shapes`, every axis of every tensor and cache leaf is `Dim.AUTO`.
        dynamic_shapes: overrides what `dynamic` would choose: a mapping from input name to what `torch.export` takes for
            that input (`{axis: Dim}`, a sequence of dims, or the same nested as the input is). Inputs left out are static.
        strict: trace through TorchDynamo instead of by running the Python code.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    dynamic: bool = False
    dynamic_shapes: dict[str, Any] | None = None
    strict: bool = False


class OnnxConfig(DynamoConfig):
    """How an exported program is lowered to ONNX.

    Attributes:
        opset: version of the default operator set in the written file, from 18 to 23 natively, lower by down-conversion.
        optimize: run onnxscript's graph optimizer, less what is quadratic or would fold weights.
    """

    opset: int = NATIVE_OPSET
    optimize: bool = True

    @field_validator("opset")
    @classmethod
    def _opset_can_be_had(cls, opset: int) -> int:
        if not 1 <= opset <= MAX_OPSET:
            raise UsageError(f"opset {opset} can't be had", next=f"ask for an opset up to {MAX_OPSET}; {NATIVE_OPSET} is the default")
        return opset


class ExecutorchConfig(DynamoConfig):
    """How an exported program is lowered to ExecuTorch.

    Attributes:
        backend: what the program is prepared for: `xnnpack`, `portable` (no partitioner) or `cuda`, or the name of any
            registered `prepare_for_<name>`.
        max_size: upper bound for dynamic axes that have none of their own; memory is planned for the upper bounds.
            None takes four times the sample's size.
    """

    backend: str = "xnnpack"
    max_size: int | None = Field(default=None, gt=1)


ShapesKind = Literal["dynamic", "static"]
