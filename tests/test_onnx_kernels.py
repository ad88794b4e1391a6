"""What ONNX Runtime can't run is known before a file is written, and nothing else is refused."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from exporters.onnx_kernels import missing_kernels

TYPES = [
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
    ir.DataType.FLOAT16,
    ir.DataType.BFLOAT16,
    ir.DataType.INT64,
    ir.DataType.INT8,
    ir.DataType.BOOL,
]


def graph(operator: str, dtype: ir.DataType, arity: int) -> ir.Model:
    """One node over inputs of one type."""
    inputs = [ir.Value(name=f"x{index}", type=ir.TensorType(dtype), shape=ir.Shape([2, 2])) for index in range(arity)]
    node = ir.node(operator, inputs)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(dtype)
    return ir.Model(ir.Graph(inputs, node.outputs, nodes=[node], opset_imports={"": 18}), ir_version=9)


def loads(model: ir.Model) -> bool:
    try:
        onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a class of its own for each status, without a common base
        if "NOT_IMPLEMENTED" in str(error):
            return False
        pytest.skip(f"not a graph: {str(error)[:80]}")
    return True


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("operator", "arity"), [("Mul", 2), ("MatMul", 2), ("Neg", 1), ("Softmax", 1), ("Transpose", 1), ("Erf", 1), ("Sign", 1)]
)
def test_says_what_the_runtime_says(operator: str, arity: int, dtype: ir.DataType) -> None:
    model = graph(operator, dtype, arity)
    assert (missing_kernels(model) == []) == loads(model)


def test_names_operator_and_type_once() -> None:
    model = graph("Mul", ir.DataType.BFLOAT16, 2)
    again = ir.node("Mul", [model.graph.outputs[0], model.graph.outputs[0]])
    again.outputs[0].type = ir.TensorType(ir.DataType.BFLOAT16)
    model.graph.append(again)
    assert missing_kernels(model) == ["Mul(bfloat16)"]


def test_what_has_no_type_or_no_computation_is_let_through() -> None:
    model = graph("Mul", ir.DataType.BFLOAT16, 2)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.type = None
    constant = ir.node("Constant", [], attributes={"value": ir.tensor(np.array(1))})
    constant.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    model.graph.append(constant)
    assert missing_kernels(model) == []
