"""Eager and exported programs, run so that every value on the way is seen."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from exporters.drift_values import CONSTANT, INPUT, WEIGHT, Value, as_tensor
from exporters.executorch_stage import operator_name
from exporters.signature import Signature

Record = Callable[[Value], None]


class Runnable:
    """A stage that can be run on the tensors of its graph's inputs.

    Attributes:
        follows_names: whether its values keep the names that they have in the stage before.
        fineness: what one value stands for.
    """

    follows_names = False
    fineness = "one node"

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The graph's outputs, in the order of the signature's."""
        raise NotImplementedError

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        """Run, and call `record` with every value, in the order in which they are computed; the names of those that are the outputs."""
        raise NotImplementedError

    def closer(self, name: str) -> "Runnable | None":
        """What visits the inside of the value called `name`, which is that of many nodes; None where there is no inside to be seen."""
        return None


# ── Eager ─────────────────────────────────────────────────────────────────────


class Eager(Runnable):
    """The model itself; its values are what every operator returns that it dispatches to, composite ones spelled out."""

    def __init__(self, model: nn.Module, signature: Signature) -> None:
        self._model = model
        self._signature = signature

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.as_tensor(leaf) for leaf in self._graph_outputs(self.call(_copies(leaves)))]

    def call(self, leaves: Sequence[torch.Tensor]) -> Any:
        """What the model returns, of tensors that it may change."""
        given = iter(leaves)
        filled = [next(given) if info.in_graph else info.value for info in self._signature.inputs]
        with torch.no_grad():
            return self._model(**pytree.tree_unflatten(filled, self._signature.input_spec), **self._signature.constants)

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        given = _copies(leaves)
        mode = _Watching(self._model, record)
        for info, leaf in zip(self._signature.graph_inputs, given, strict=True):
            mode.know(leaf, info.name, INPUT)
        for name, tensor in (*self._model.named_parameters(), *self._model.named_buffers()):
            mode.know(tensor, name, WEIGHT)
        with mode.inside_modules(), mode:
            outputs = self.call(given)
        return [mode.name_of(leaf) if isinstance(leaf, torch.Tensor) else "" for leaf in self._graph_outputs(outputs)]

    def _graph_outputs(self, outputs: Any) -> list[Any]:
        leaves = pytree.tree_leaves(outputs)
        if len(leaves) != len(self._signature.outputs):
            return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return [leaf for leaf, info in zip(leaves, self._signature.outputs, strict=True) if info.in_graph]


class _Watching(TorchDispatchMode):
    """Records what every operator returns, under the operator's name and a number."""

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module, record: Record) -> None:
        super().__init__()
        self._record = record
        self._names = WeakTensorKeyDictionary()
        self._counts: Counter[str] = Counter()
        self._paths = {module: path for path, module in model.named_modules()}
        self._entered: list[str] = [""]

    def know(self, tensor: torch.Tensor, name: str, operator: str) -> None:
        """A tensor that comes from outside."""
        self._names[tensor] = name
        value = as_tensor(tensor)
        if value is not None:
            self._record(Value(name, operator, (), value, presumed=operator == INPUT))

    def name_of(self, tensor: torch.Tensor) -> str:
        name: str = self._names.get(tensor, "")
        return name

    def inside_modules(self) -> "_Entered":
        """For a block, know which module is being called."""
        return _Entered(self._paths, self._entered)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        operator = str(func)
        inputs = [self.name_of(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for leaf in pytree.tree_leaves(result):
            value = as_tensor(leaf)
            if value is None:
                continue
            base = operator.split(".")[1] if "." in operator else operator
            name = f"{base}_{self._counts[base]}"
            self._counts[base] += 1
            if isinstance(leaf, torch.Tensor):
                self._names[leaf] = name
            self._record(Value(name, operator, tuple(filter(None, inputs)), value, self._entered[-1]))
        return result


class _Entered:
    """Keeps the paths of the modules that are being called, the innermost last, while it is entered."""

    def __init__(self, paths: Mapping[nn.Module, str], entered: list[str]) -> None:
        self._paths, self._entered = paths, entered
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        def enter(module: nn.Module, _: Any) -> None:
            self._entered.append(self._paths.get(module, self._entered[-1]))

        def leave(module: nn.Module, _: Any, __: Any) -> None:
            self._entered.pop()

        for module in self._paths:
            self._hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


# ── Exported programs ─────────────────────────────────────────────────────────


class Program(Runnable):
    """An exported program in eager PyTorch, node by node; ATen or ExecuTorch's edge dialect."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self._interpret(leaves, None)[0]

    def visit(self, leaves: Sequence[torch.Tensor], record: Record) -> list[str]:
        return self._interpret(leaves, record)[1]

    def _interpret(self, leaves: Sequence[torch.Tensor], record: Record | None) -> tuple[list[torch.Tensor], list[str]]:
        signature = self.program.graph_signature
        walker = _Walker(self.program.graph_module, record)
        placeholders = self.program.graph.find_nodes(op="placeholder")
        arguments = []
        for node, (operator, name, value) in zip(placeholders, self._arguments(leaves), strict=True):
            arguments.append(value)
            tensor = as_tensor(value)
            if tensor is not None and record is not None:
                record(Value(name or node.name, operator, (), tensor, presumed=operator == INPUT))
                walker.made_by[node] = [name or node.name]
        with torch.no_grad():
            results = walker.run(*arguments, enable_io_processing=False)
        outputs = self.program.graph.output_node().args[0]
        chosen = [
            index
            for index, spec in enumerate(signature.output_specs)
            if spec.kind is OutputKind.USER_OUTPUT and not isinstance(spec.arg, ConstantArgument)
        ]
        names = [(walker.made_by.get(outputs[index]) or [""])[0] for index in chosen]
        return [torch.as_tensor(results[index]) for index in chosen], names

    def _arguments(self, leaves: Sequence[torch.Tensor]) -> Iterator[tuple[str, str, Any]]:
        """Where from, under what name (empty for the placeholder's own) and what: for every placeholder."""
        program = self.program
        given = iter(_copies(leaves))
        for spec in program.graph_signature.input_specs:
            target = spec.target or ""
            if spec.kind is InputKind.USER_INPUT:
                yield INPUT, "", spec.arg.value if isinstance(spec.arg, ConstantArgument) else next(given)
            elif spec.kind is InputKind.TOKEN:
                yield INPUT, "", torch.empty(0)
            elif spec.kind is InputKind.PARAMETER:
                yield WEIGHT, target, program.state_dict[target]
            else:
                value = program.constants[target] if target in program.constants else program.state_dict[target]
                # a program may change a buffer in place, and the next run starts from the same
                yield WEIGHT, target, value.clone() if isinstance(value, torch.Tensor) else value


def module_paths(program: ExportedProgram) -> dict[str, str]:
    """From a node's name to the path of the module that it comes from, for the nodes that say so."""
    return {node.name: path for node in program.graph.nodes if (path := module_path(node))}


def module_path(node: Node) -> str:
    """The path of the module that a node comes from, as far as it says; empty for the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0] if stack else ""


class _Walker(Interpreter):
    """Records what every node computes. Regions that run once (a branch that is taken, a block without gradients) are walked too.

    A node that returns several tensors is no value: the nodes that take one of them out are, as if each had called the operator itself.
    """

    def __init__(self, module: GraphModule, record: Record | None, prefix: str = "", made_by: dict[Node, list[str]] | None = None) -> None:
        super().__init__(module)
        self._record = record
        self._prefix = prefix
        self._operators: dict[Node, str] = {}
        self._current: Node | None = None
        # from a node to the names of the values that it stands for
        self.made_by: dict[Node, list[str]] = made_by or {}

    def run_node(self, node: Node) -> Any:
        self._current = node
        result = super().run_node(node)
        if self._record is None or node.op not in ("call_function", "get_attr", "call_method"):
            return result
        tensor = as_tensor(result)
        if node in self.made_by and tensor is None:
            return result  # a region whose results have names of their own
        inputs = list(dict.fromkeys(name for source in node.all_input_nodes for name in self.made_by.get(source, ())))
        if tensor is None:
            self.made_by[node] = inputs
            self._operators[node] = operator_name(node)
            return result
        operator = CONSTANT if node.op == "get_attr" else operator_name(node)
        if node.target is getitem:
            operator = self._operators.get(node.all_input_nodes[0], operator)
        name = self._prefix + node.name
        presumed = operator == CONSTANT or not isinstance(result, torch.Tensor)
        self._record(Value(name, operator, tuple(inputs), tensor, module_path(node), presumed))
        self.made_by[node] = [name]
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        higher_order = torch.ops.higher_order
        if target is higher_order.wrap_with_set_grad_enabled:
            with torch.set_grad_enabled(args[0]):
                return self._walk(args[1], args[2:], 2)
        if target is higher_order.wrap_with_autocast:
            device, dtype, enabled, cache, inner, *rest = args
            with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache):
                return self._walk(inner, rest, 5)
        if target is higher_order.cond:
            return self._walk(args[1] if args[0] else args[2], args[3] if len(args) > 3 else (), None)
        return super().call_function(target, args, kwargs)

    def _walk(self, inner: GraphModule, given: Sequence[Any], first: int | None) -> Any:
        """Interpret a region; `first` is where its operands begin among the node's arguments, None where they are the last one."""
        node = self._current
        assert node is not None
        sources = list(node.args[-1] if first is None and len(node.args) > 3 else node.args[first:] if first is not None else ())
        placeholders = inner.graph.find_nodes(op="placeholder")
        made_by = {placeholder: list(self.made_by.get(source, ())) for placeholder, source in zip(placeholders, sources, strict=False)}
        walker = _Walker(inner, self._record, f"{self._prefix}{node.name}.", made_by)
        result = walker.run(*given, enable_io_processing=False)
        outputs = [each for each in pytree.tree_leaves(inner.graph.output_node().args[0]) if isinstance(each, Node)]
        self.made_by[node] = [name for each in outputs for name in walker.made_by.get(each, ())]
        return result


def _copies(leaves: Sequence[Any]) -> list[Any]:
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
